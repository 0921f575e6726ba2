"""Read runs and metric histories from MLflow's REST API, with limits on time and size: which run is a
trial's, and which a child below it.

MlflowClient isn't used: it requests one history at a time, and reads responses of any size. Its HTTP
functions are used, so that credentials come from the same environment variables.
"""

import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from time import monotonic
from typing import Any

from bot.core.curves import Curve, Point, in_order
from bot.core.metrics import measured
from bot.sweep.results import run_tags
from bot.sweep.results.experiments import id_in
from k8s.api.errors import SweepbotError

PARENT_TAG = "mlflow.parentRunId"
READ_TIMEOUT = 10.0  # seconds without a byte
ANSWER_TIMEOUT = 20.0  # seconds of one response
MAX_ANSWER_SIZE = 8 * 2**20  # bytes; 250 runs with 100 metrics and parameters each have 5 MiB
PAGE_SIZE, MAX_PAGES = 250, 4  # runs of an experiment, newest first
SMALLER = 10  # pages that are too large are read again in this many parts
NEWEST_FIRST = ["attributes.start_time DESC"]
CURVES_PER_REQUEST = 20  # 20 curves of MAX_POINTS have 5 MiB
MAX_POINTS = 2_500  # of one curve, the limit of MLflow's server, which samples longer ones evenly
MAX_STEP = 2**63
CLOCK_SKEW = 3600.0  # seconds, between the clock of a trial and the cluster's
MAX_NAMES = 50  # metrics of a run that are named
ABSENT = b"RESOURCE_DOES_NOT_EXIST"
TRIAL_NAME_RULE = re.compile(r"[a-z0-9][a-z0-9-]{0,252}")  # other runs of the experiment aren't trials


class TrackingError(SweepbotError):
    """MLflow can't be reached, or its answer can't be used."""


class AnswerTooLargeError(TrackingError):
    """MLflow's answer has over MAX_ANSWER_SIZE bytes."""


class AnswerTooSlowError(TrackingError):
    """MLflow hasn't answered in time; the cause can be how much was requested."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A trial's run."""

    id: str
    trial: str
    parent: str  # the ID of the run in which it is nested, or ""
    started: int  # Unix milliseconds
    latest: Point
    names: frozenset[str] = frozenset()  # of all that it has logged


class TrackingApi:
    """Methods block, and raise TrackingError: call them in a thread."""

    def __init__(self, tracking_uri: str) -> None:
        self._uri = tracking_uri

    def runs(self, experiment: str, metric: str, url: str = "", since: float = 0.0) -> dict[str, Run]:
        """Return the run of each trial that has logged the metric, among an experiment's newest 1,000.

        If a trial has several runs, one that isn't nested is preferred, then the one that started last,
        because a restarted trial logs to a new run.

        Args:
            experiment: its name.
            url: its URL, whose ID is known also if it was renamed; or "".
            since: Unix seconds; runs that started before are left out, with those nested in them.
        """
        numbers = {id_in(url), self._experiment(experiment)} - {""}
        there, runs = {""}, list[Run]()
        for each in self._search(sorted(numbers), since) if numbers else ():
            there.add(str(mapping(each, "info").get("run_id")))
            runs += [run] if (run := _run(each, metric)) else []
        found: dict[str, Run] = {}
        for run in runs:
            other = found.get(run.trial)
            if since and run.parent not in there:
                continue
            if other is None or (not run.parent, run.started) > (not other.parent, other.started):
                found[run.trial] = run
        return found

    def curves(self, trials: Mapping[str, str], metric: str, *, most: int = MAX_POINTS) -> dict[str, Curve]:
        """Return the curves by trial, with up to `most` points each. `trials`: by run ID."""
        points: dict[str, list[Point]] = {}
        runs = iter(trials)
        while batch := [*islice(runs, CURVES_PER_REQUEST)]:
            query = [
                ("metric_key", metric),
                ("max_results", str(most)),
                *(("run_ids", each) for each in batch),
            ]
            answer = self._call("GET", "metrics/get-history-bulk-interval", params=query)
            for each in dicts(answer, "metrics"):
                if (point := _point(each)) and each.get("run_id") in trials:
                    points.setdefault(trials[each["run_id"]], []).append(point)
        return {trial: in_order(found) for trial, found in points.items()}

    def search(
        self, experiments: Sequence[str], where: str, size: int, token: str, order: Sequence[str] = ()
    ) -> tuple[list[dict[str, Any]], str]:
        """Return a page of the runs that match a filter, and the next page's token (`run_search.Search`).

        Raises AnswerTooLargeError and AnswerTooSlowError.
        """
        body = {"experiment_ids": [*experiments], "filter": where, "max_results": size, "page_token": token}
        body["order_by"] = [*order]
        answer = self._call("POST", "runs/search", json={key: each for key, each in body.items() if each})
        return dicts(answer, "runs"), str(answer.get("next_page_token") or "")

    def _experiment(self, name: str) -> str:
        """Return the experiment's ID; "" if it doesn't exist yet."""
        found = self._call("GET", "experiments/get-by-name", params={"experiment_name": name})
        return str(mapping(found, "experiment").get("experiment_id", ""))

    def _search(self, experiments: Sequence[str], since: float) -> Iterator[Any]:
        where = f"attributes.start_time >= {int((since - CLOCK_SKEW) * 1000)}" if since else ""
        token, size = "", PAGE_SIZE
        for _ in range(MAX_PAGES):
            page, token, size = smaller(self.search, experiments, where, size, token, NEWEST_FIRST)
            yield from page
            if not token:
                return

    def _call(self, method: str, endpoint: str, **query: Any) -> dict[str, Any]:
        """Return the parsed response; {} if the requested object doesn't exist."""
        try:
            with measured("mlflow", operation=f"{method} {endpoint}"):
                status, body = self._answer(method, f"/api/2.0/mlflow/{endpoint}", query)
            answer = json.loads(body) if status == 200 or (status == 404 and ABSENT in body) else {}
        except TrackingError:
            raise
        except Exception as error:  # MLflow's functions raise whatever their transports raise
            kind = AnswerTooSlowError if "Read timed out" in str(error) else TrackingError
            raise kind(f"{type(error).__name__}: {error}") from error
        if status == 404 and isinstance(answer, dict) and answer.get("error_code") == ABSENT.decode():
            return {}
        if status != 200 or not isinstance(answer, dict):
            raise TrackingError(f"MLflow answered {endpoint} with HTTP {status}")
        return answer

    def _answer(self, method: str, path: str, query: dict[str, Any]) -> tuple[int, bytes]:
        """Return the status and the body."""
        # Imported here: it takes three seconds, and most processes never need it.
        from mlflow.utils.credentials import get_default_host_creds  # noqa: PLC0415
        from mlflow.utils.rest_utils import http_request  # noqa: PLC0415

        login = get_default_host_creds(self._uri)  # type: ignore[no-untyped-call]
        limits = {"max_retries": 0, "timeout": READ_TIMEOUT, "raise_on_status": False}
        limits |= {"stream": True, "allow_redirects": False}
        with http_request(login, path, method, **limits, **query) as response:  # type: ignore[no-untyped-call]
            return int(response.status_code), _body(response)


def smaller(
    search: Callable[..., tuple[list[dict[str, Any]], str]],
    experiments: Sequence[str],
    where: str,
    size: int,
    token: str,
    *more: Sequence[str],
) -> tuple[list[dict[str, Any]], str, int]:
    """Return a page as `search` does, of fewer runs if it is too large or too slow, and its size."""
    while True:
        try:
            return *search(experiments, where, size, token, *more), size
        except (AnswerTooLargeError, AnswerTooSlowError):
            if size == 1:
                raise
            size = max(1, size // SMALLER)


def _body(response: Any) -> bytes:
    """Read the response within ANSWER_TIMEOUT: a request's `timeout` limits the time between two bytes."""
    until, chunks, size = monotonic() + ANSWER_TIMEOUT, [], 0
    for chunk in response.iter_content(2**16):
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_ANSWER_SIZE:
            raise AnswerTooLargeError(f"MLflow's answer is larger than {MAX_ANSWER_SIZE // 2**20} MiB")
        if monotonic() > until:
            raise AnswerTooSlowError(f"MLflow's answer took longer than {ANSWER_TIMEOUT:g} s")
    return b"".join(chunks)


def _run(raw: Any, metric: str) -> Run | None:
    """Read one run of a search; None if it isn't a trial's run, or hasn't logged the metric."""
    data, info = mapping(raw, "data"), mapping(raw, "info")
    tags = {each.get("key"): each.get("value") for each in dicts(data, "tags")}
    trial = tags.get(run_tags.TRIAL) or tags.get(run_tags.RUN_NAME)
    metrics = {each.get("key"): each for each in dicts(data, "metrics")}
    latest = metrics.get(metric)
    point = _point(latest) if latest else None
    run_id, started = info.get("run_id"), info.get("start_time")
    if not (
        isinstance(trial, str) and TRIAL_NAME_RULE.fullmatch(trial) and point and isinstance(run_id, str)
    ):
        return None
    began = started if isinstance(started, int) else 0
    names = frozenset(islice((name for name in metrics if isinstance(name, str)), MAX_NAMES))
    parent = str(tags.get(PARENT_TAG, ""))
    return Run(id=run_id, trial=trial, parent=parent, started=began, latest=point, names=names)


def _point(raw: Mapping[str, Any]) -> Point | None:
    """Read a metric. MLflow returns NaN as text, and stores infinity as the largest finite number."""
    try:
        step, value = int(raw.get("step") or 0), float(raw["value"])
        value = math.copysign(math.inf, value) if abs(value) >= sys.float_info.max else value
        at = float(raw.get("timestamp") or 0) / 1000
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return Point(step, value, at) if -MAX_STEP <= step < MAX_STEP and math.isfinite(at) else None


def mapping(raw: Any, key: str) -> dict[str, Any]:
    """Return the object of a key; {} if there is none."""
    found = raw.get(key) if isinstance(raw, dict) else None
    return found if isinstance(found, dict) else {}


def dicts(raw: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the objects in the list of a key."""
    found = raw.get(key)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
