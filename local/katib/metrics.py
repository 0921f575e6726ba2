"""The db-manager: values that collectors reported, and the observation that Katib derives from them."""

import contextlib
import math
from collections.abc import Callable
from typing import NamedTuple

from local.kubernetes.apiserver.kinds import Object

UNAVAILABLE = "unavailable"


class Reported(NamedTuple):
    """A value of a metric; "" is the objective's."""

    value: str
    second: float
    metric: str = ""


class MetricsStore:
    """Reported values by trial name. `on_report` is called with that name."""

    def __init__(self) -> None:
        self._logs: dict[str, list[Reported]] = {}
        self.on_report: Callable[[str], None] = lambda _trial: None
        self.on_early_stop: Callable[[str], None] = lambda _trial: None

    def report(self, trial: str, logs: list[Reported]) -> None:
        self.record(trial, logs)
        self.on_report(trial)

    def record(self, trial: str, logs: list[Reported]) -> None:
        """Report as the trial controller does, without a call."""
        self._logs.setdefault(trial, []).extend(logs)

    def values(self, trial: str, metric: str) -> list[str]:
        """Return the reported values of a metric, in order."""
        return [one.value for one in self._logs.get(trial, []) if one.metric in {"", metric}]

    def forget(self, trial: str) -> None:
        self._logs.pop(trial, None)

    def observation(self, trial: str, metric: str, *additional: str) -> Object | None:
        """Return each metric's min, max, and latest as Katib writes them; None before the first report."""
        if trial not in self._logs:
            return None
        logs = self._logs[trial]
        by_name = {name: [one for one in logs if one.metric == name] for name in additional}
        by_name[metric] = [one for one in logs if one.metric in {"", metric}]
        # Go's map: the objective is not always first.
        return {"metrics": [{"name": name, **_summary(by_name[name])} for name in sorted(by_name)]}


def _summary(logs: list[Reported]) -> dict[str, str]:
    """Return min, max, and latest. Comparisons with NaN are false, so a first NaN stays, as in Katib."""
    found = dict.fromkeys(("min", "max", "latest"), UNAVAILABLE)
    last = -math.inf
    for value, second, _ in logs:
        with contextlib.suppress(ValueError):  # a text has only a latest value
            number = float(value)
            if found["min"] == UNAVAILABLE:
                found |= {"min": value, "max": value}
            found["min"] = value if number < float(found["min"]) else found["min"]
            found["max"] = value if number > float(found["max"]) else found["max"]
        if second >= last:
            last, found["latest"] = second, value
    return found
