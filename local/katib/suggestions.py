"""The algorithm services: random as hyperopt samples it, grid as optuna walks it.

A service here has no state but the number of assignments it has given: sample i of one Suggestion is always
the same.
"""

import itertools
import math
import random
from collections import Counter

from local.kubernetes.kinds import Object, suffix


class ServiceError(Exception):
    """What a service answers over gRPC instead of assignments."""


class Suggestions:
    """All algorithm services of a cluster."""

    def __init__(self) -> None:
        self._given: Counter[str] = Counter()

    def next(self, suggestion: Object, experiment: Object, count: int) -> list[Object]:
        """So many new assignments. Raises ServiceError."""
        uid, made = suggestion["metadata"]["uid"], []
        try:
            for index in range(self._given[uid], self._given[uid] + count):
                values = _sample(experiment["spec"], uid, index)
                name = f"{experiment['metadata']['name']}-{suffix(8)}"
                assignments = [{"name": key, "value": value} for key, value in values.items()]
                made.append({"name": name, "parameterAssignments": assignments})
        except (ValueError, IndexError, ArithmeticError) as error:
            why = f"rpc error: code = Unknown desc = Exception calling application: {error}"
            raise ServiceError(why) from error
        self._given[uid] += count
        return made


def objection(experiment: Object) -> str:
    """What ValidateAlgorithmSettings says against the experiment, or nothing."""
    spec = experiment["spec"]
    if spec["algorithm"]["algorithmName"] != "grid":
        return ""
    try:
        count = math.prod(len(_points(one)) for one in spec["parameters"])
    except ValueError as error:
        return f"failed to validate parameters({[one['name'] for one in spec['parameters']]}): {error}"
    most = spec.get("maxTrialCount", 0)
    return f"Max Trial Count: {most} > all possible search combinations: {count}" if most > count else ""


def _sample(spec: Object, seed: str, index: int) -> dict[str, str]:
    parameters = spec["parameters"]
    if spec["algorithm"]["algorithmName"] == "grid":
        points = list(itertools.product(*(_points(one) for one in parameters)))
        random.Random(seed).shuffle(points)
        return dict(zip((one["name"] for one in parameters), points[index % len(points)], strict=True))
    rng = random.Random(f"{seed} {index}")
    return {one["name"]: _draw(rng, one) for one in parameters}


def _draw(rng: random.Random, parameter: Object) -> str:
    """hyperopt rounds to multiples of the step, which may leave the range."""
    kind, space = parameter["parameterType"], parameter["feasibleSpace"]
    if kind == "categorical":
        return str(rng.choice(space.get("list", [])))
    low, high = float(space["min"]), float(space["max"])
    if space["distribution"] == "logUniform":
        value = math.exp(rng.uniform(math.log(low), math.log(high)))
    else:
        value = rng.uniform(low, high)
    step = float(space.get("step") or (kind == "int"))
    value = round(value / step) * step if step else value
    return str(int(value)) if kind == "int" else str(value)


def _points(parameter: Object) -> list[str]:
    kind, space = parameter["parameterType"], parameter["feasibleSpace"]
    if kind == "categorical":
        return [str(one) for one in space.get("list", [])]
    if kind == "int":
        return [str(n) for n in range(int(space["min"]), int(space["max"]) + 1, int(space.get("step") or 1))]
    if not space.get("step"):
        why = "step is nil; For discrete search space, all parameters must include step"
        raise ValueError(f"Param {parameter['name']} {why}")
    low, high, step = (float(space[key]) for key in ("min", "max", "step"))
    points = [low + n * step for n in range(math.ceil((high + step - low) / step))]
    return [str(point) for point in points if point <= high]
