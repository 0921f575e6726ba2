"""Write a sweep's trials as CSV (results.csv) or JSON, for spreadsheets and notebooks: columns, order, and
the statistics of seeds. Pure.

Numbers have every digit; unknown values are empty. A parameter or metric named like another column gets the
prefix that MLflow uses, `params.` or `metrics.`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from bot.core.seeds import statistics
from bot.sweep.results.models import SweepResults, TrialResult
from bot.sweep.results.ranking import ranked
from bot.sweep.results.table import STATES
from bot.text.number_format import as_csv

ABOUT = (
    *("sweep", "phase", "reason", "owner_name", "repo_url", "branch", "commit", "subject", "image"),
    *("gpus", "nodes"),
    *("mlflow_experiment", "mlflow_url", "started", "ended", "best", "katib_best", "omitted"),
)
FRONT = "pareto_front"  # whether no other trial beats it; only of several objectives
FACTS = ("started", "ended", "node", "gpu_model", "gpu_hours", "utilization", "cost", "run_url")


def csv_text(results: SweepResults) -> str:
    """Return a line per trial, the best first, under a header; for seeds, their statistics follow."""
    names = _columns(results)
    rows = [[_text(each) for each in values(results, trial).values()] for trial in ordered(results)]
    return as_csv([names, *rows, *([label, "", value] for label, value in _seed_rows(results))])


def json_text(results: SweepResults) -> str:
    """Return the sweep and its trials; the space and metrics by name, times in ISO 8601."""
    trials = [
        {**asdict(trial), "state": STATES[trial.state], "metrics": _metrics(results, trial)}
        for trial in ordered(results)
    ]
    for trial in trials:
        del trial["value"], trial["more"]
        trial.update({FRONT: trial["name"] in results.front} if results.space.goals else {})
    about = {name: getattr(results, name) for name in ABOUT}
    space = results.space
    about |= {"metric": space.metric, "goal": space.goal, "currency": results.currency}
    about |= {"objectives": space.objectives} if space.goals else {}
    return json.dumps(about | {"trials": trials}, indent=2, default=_text)


def ordered(results: SweepResults) -> list[TrialResult]:
    """Return the trials, the best first, or by seed."""
    seed = results.space.seed
    if not seed:
        return ranked(results.space.goal, results.trials, results.best)
    return sorted(results.trials, key=lambda trial: (_whole(trial.parameters.get(seed, "")), trial.name))


def values(results: SweepResults, trial: TrialResult) -> dict[str, Any]:
    """Return a trial's values by column."""
    metrics = _metrics(results, trial)
    facts = {name: getattr(trial, name) for name in FACTS}
    front = [trial.name in results.front] if results.space.goals else []
    cells = [trial.name, STATES[trial.state], *front, *metrics.values()]
    cells += [trial.parameters.get(each.name) for each in results.space.parameters]
    return dict(zip(_columns(results), [*cells, *facts.values()], strict=True))


def _columns(results: SweepResults) -> list[str]:
    space = results.space
    names = ["trial", "state", *([FRONT] if space.goals else [])]
    taken = {*names, *FACTS}
    for prefix, group in (("metrics.", space.strategies), ("params.", [p.name for p in space.parameters])):
        for name in group:
            names.append(prefix + name if name in taken else name)
            taken.add(names[-1])
    return [*names, *FACTS]


def _metrics(results: SweepResults, trial: TrialResult) -> Mapping[str, float | None]:
    objective, *more = results.space.strategies
    return {objective: trial.value, **{name: trial.more.get(name) for name in more}}


def _seed_rows(results: SweepResults) -> list[tuple[str, str]]:
    """Return what the message says about seeds, as rows below the trials."""
    finite = [trial.value for trial in results.trials if trial.value is not None]
    found = statistics(finite) if results.space.seed else None
    if found is None:
        return []
    low, high = found.interval or (None, None)
    rows = {"mean": found.mean, "standard deviation": found.deviation, "95% from": low, "95% to": high}
    return [(name, repr(value)) for name, value in rows.items() if value is not None]


def _whole(text: str) -> int:
    return int(text) if text.isdecimal() else -1


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat()
    return repr(value) if isinstance(value, float) else str(value)
