"""Read the runs of an ended sweep's trials from MLflow, in answers of limited size.

Training code decides how many metrics and tags a run has, and MLflow's client holds all runs of a page in
memory. Only what `trial_runs` needs of a run is kept.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from bot.sweep.results import run_tags
from bot.sweep.results.models import SweepResults, TrialResult
from bot.sweep.results.tracking_api import PARENT_TAG, AnswerTooLargeError, dicts, mapping, smaller
from bot.sweep.results.trial_runs import FROM_KATIB, FRONT_TAG, SOURCE_TAG, STATE_TAG, Run, front_tag

log = logging.getLogger(__name__)

PAGE_SIZE, MAX_PAGES = 100, 100  # runs; beyond these, the runs of missing trials are searched one by one

# Returns a page of the experiments' runs, and the token of the next one, "" after the last. The arguments are
# the experiments' IDs, a filter, the page's size, and its token. Raises AnswerTooLargeError, TrackingError.
Search = Callable[[Sequence[str], str, int, str], tuple[list[dict[str, Any]], str]]


class RunSearch:
    """The runs of one sweep. Raises TrackingError."""

    def __init__(self, search: Search, experiments: Sequence[str], results: SweepResults) -> None:
        self._search, self._experiments, self._results = search, experiments, results
        self._names = {
            *results.space.strategies,
            *(name for each in results.trials for name in each.parameters),
        }
        self._size = PAGE_SIZE
        self._found: dict[str, list[Run]] = defaultdict(list)  # by trial
        self._complete = False  # what is not known isn't there

    def read(self) -> None:
        """Read the runs of all trials in pages, up to MAX_PAGES."""
        token = ""
        for _ in range(MAX_PAGES):
            try:
                page, token = self._page("", token)
            except AnswerTooLargeError:
                return
            for run in page:
                self._found[run.trial].append(run)
            if not token:
                self._complete = True
                return

    def of(self, trial: TrialResult) -> list[Run]:
        """Return the trial's runs; those that weren't read are searched."""
        if self._complete or trial.name in self._found:
            return self._found[trial.name]
        try:
            return self._page(f"tags.`{run_tags.TRIAL}` = '{trial.name}'", "")[0]
        except AnswerTooLargeError as error:
            log.warning("the MLflow run of %s stays as it is: %s", trial.name, error)
            front = front_tag(self._results, trial)
            return [Run(id="", trial=trial.name, status="FINISHED", state=trial.state, front=front)]

    def _page(self, where: str, token: str) -> tuple[list[Run], str]:
        found, after, self._size = smaller(self._search, self._experiments, where, self._size, token)
        return [run for each in found if (run := self._run(each))], after

    def _run(self, raw: dict[str, Any]) -> Run | None:
        info, data = mapping(raw, "info"), mapping(raw, "data")
        tags = {each.get("key"): each.get("value") for each in dicts(data, "tags")}
        run_id, trial, started = info.get("run_id"), tags.get(run_tags.TRIAL), info.get("start_time")
        if not (isinstance(trial, str) and trial and isinstance(run_id, str)):
            return None
        return Run(
            id=run_id,
            trial=trial,
            experiment=str(info.get("experiment_id", "")),
            status=str(info.get("status", "")),
            started=started if isinstance(started, int) else 0,
            nested=PARENT_TAG in tags,
            ours=tags.get(SOURCE_TAG) == FROM_KATIB,
            state=str(tags.get(STATE_TAG) or ""),
            front=str(tags.get(FRONT_TAG) or ""),
            params=self._known(data, "params"),
            metrics=self._known(data, "metrics"),
        )

    def _known(self, data: dict[str, Any], kind: str) -> frozenset[str]:
        return frozenset(name for each in dicts(data, kind) if (name := each.get("key")) in self._names)
