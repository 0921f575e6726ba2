"""The algorithm services: new assignments for a Suggestion, from the results of its trials.

random, grid and sobol have no state but the number of assignments they have given: sample i of one Suggestion
is always the same. The others learn, and so keep a study.
"""

from collections import Counter
from typing import TYPE_CHECKING

from local.katib.algorithm_validation import GOPTUNA, settings_of
from local.katib.random_and_grid import drawn, walked
from local.katib.search_service import ServiceError, assignment
from local.kubernetes.apiserver.kinds import Object, suffix

if TYPE_CHECKING:
    from local.katib.samplers import Study


class Suggestions:
    """The algorithm services of a cluster."""

    def __init__(self) -> None:
        self._given: Counter[str] = Counter()
        self._studies: dict[str, Study] = {}

    def next(self, suggestion: Object, experiment: Object, trials: list[Object], count: int) -> list[Object]:
        """Return this many new assignments. Raises ServiceError."""
        uid, spec, made = suggestion["metadata"]["uid"], experiment["spec"], []
        if uid not in self._given:  # the first request, or the first after a restart
            self._given[uid] = suggestion.get("status", {}).get("suggestionCount", 0)
        if spec["algorithm"]["algorithmName"] in GOPTUNA:
            _check_as_goptuna(spec, trials)
        try:
            for index in range(self._given[uid], self._given[uid] + count):
                name = f"{experiment['metadata']['name']}-{suffix(8)}"
                made.append(assignment(name, self._values(spec, uid, index, name, trials)))
        except (ValueError, IndexError, ArithmeticError) as error:
            why = f"rpc error: code = Unknown desc = Exception calling application: {error}"
            raise ServiceError(why) from error
        self._given[uid] += count
        return made

    def _values(self, spec: Object, uid: str, index: int, trial: str, trials: list[Object]) -> dict[str, str]:
        algorithm, seed = spec["algorithm"]["algorithmName"], settings_of(spec).get("random_state", uid)
        if algorithm in ("random", "grid"):
            return (drawn if algorithm == "random" else walked)(spec, seed, index)
        # Importing optuna and scipy takes 2 s, and most tests use random search.
        from local.katib.samplers import Study, sobol  # noqa: PLC0415

        if algorithm == "sobol":
            return sobol(spec, index)
        study = self._studies.get(uid) or self._studies.setdefault(uid, Study(spec, uid))
        study.tell(trials)
        return study.ask(trial)


def _check_as_goptuna(spec: Object, trials: list[Object]) -> None:
    """Raise ServiceError as goptuna does, which fails after a trial whose last condition is KILLED."""
    seed = settings_of(spec).get("random_state", "0")
    if spec["algorithm"]["algorithmName"] == "cmaes" and not seed.removeprefix("-").isdecimal():
        why = f'strconv.Atoi: parsing "{seed}": invalid syntax'
        raise _internal(f"Failed to create goptuna study and search space: {why}")
    last = [
        conditions[-1]["type"] for one in trials if (conditions := one.get("status", {}).get("conditions"))
    ]
    if "Killed" in last:
        raise _internal("Unexpected Trial condition: KILLED")


def _internal(why: str) -> ServiceError:
    return ServiceError(f"rpc error: code = Internal desc = {why}")
