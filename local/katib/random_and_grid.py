"""Sample values as strings: random as hyperopt does, grid as optuna does."""

import itertools
import math
import random

from local.kubernetes.apiserver.kinds import Object


def drawn(spec: Object, seed: str, index: int) -> dict[str, str]:
    rng = random.Random(f"{seed} {index}")
    return {one["name"]: _draw(rng, one) for one in spec["parameters"]}


def _draw(rng: random.Random, parameter: Object) -> str:
    kind, space = parameter["parameterType"], parameter["feasibleSpace"]
    if kind == "categorical":
        return str(rng.choice(space.get("list", [])))
    low, high = float(space["min"]), float(space["max"])
    if space["distribution"] == "logUniform":
        return rounded(math.exp(rng.uniform(math.log(low), math.log(high))), parameter)
    return rounded(rng.uniform(low, high), parameter)


def rounded(value: float, parameter: Object) -> str:
    """Round to a multiple of the step, as hyperopt does; the result can be out of range."""
    whole = parameter["parameterType"] == "int"
    step = float(parameter["feasibleSpace"].get("step") or whole)
    value = round(value / step) * step if step else value
    return str(int(value)) if whole else str(value)


def walked(spec: Object, seed: str, index: int) -> dict[str, str]:
    combinations = list(itertools.product(*(points(one) for one in spec["parameters"])))
    random.Random(seed).shuffle(combinations)
    names = (one["name"] for one in spec["parameters"])
    return dict(zip(names, combinations[index % len(combinations)], strict=True))


def points(parameter: Object) -> list[str]:
    """Return every value of a grid. Raises ValueError without a step."""
    kind, space = parameter["parameterType"], parameter["feasibleSpace"]
    if kind == "categorical":
        return [str(one) for one in space.get("list", [])]
    if kind == "int":
        return [str(n) for n in range(int(space["min"]), int(space["max"]) + 1, int(space.get("step") or 1))]
    if not space.get("step"):
        why = "step is nil; For discrete search space, all parameters must include step"
        raise ValueError(f"Param {parameter['name']} {why}")
    low, high, step = (float(space[key]) for key in ("min", "max", "step"))
    found = [low + n * step for n in range(math.ceil((high + step - low) / step))]
    return [str(point) for point in found if point <= high]
