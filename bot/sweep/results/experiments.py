"""Create the MLflow experiment of a sweep before its first run, with its tags and description, and find the
URL of its runs.
"""

import asyncio
import logging
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

from bot.core.metrics import measured
from bot.core.plan import SweepPlan
from bot.core.record import SweepRecord
from bot.sweep.results import run_tags
from bot.text.wording import counted, listed
from k8s.katib.manifest import ui_link
from k8s.objects import TEAM_LABEL
from k8s.retry import Retry

if TYPE_CHECKING:
    from mlflow import MlflowClient

log = logging.getLogger(__name__)

# By default MLflow's client waits minutes for an unreachable server, prints the URL of each run, follows
# redirects, also to hosts that only this process can reach, and reports its use to mlflow-telemetry.io
# (https://mlflow.org/docs/latest/community/usage-tracking).
CLIENT_SETTINGS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",  # seconds; a busy server needs several for a hundred runs
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_ALLOW_HTTP_REDIRECTS": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
CREATE_TIMEOUT = 1.0  # seconds that a submission waits for an experiment that is being created
RETRY = Retry(base=60.0)  # of an MLflow server that failed
MARKUP = re.compile(r"[^\w .,/@#+()-]+")
MAX_FOUND = 100  # URLs not yet taken by a reconcile; another worker may have reconciled the sweep


class MlflowExperiments:
    """`wake` queues a sweep, by its ID, once the URL of its runs is known.

    `ui`, `katib_ui`: URLs for browsers; "" if Katib's is unknown.
    """

    def __init__(
        self, tracking_uri: str, ui: str, wake: Callable[[str], Awaitable[None]], katib_ui: str = ""
    ) -> None:
        self._tracking_uri, self._ui, self._wake, self._katib_ui = tracking_uri, ui, wake, katib_ui
        # Its own thread: a server that doesn't answer must not block the threads of name resolution.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mlflow")
        self._lock = asyncio.Lock()
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by sweep
        self._found: dict[str, str] = {}
        self._not_before = 0.0

    async def open(self, sweep: SweepRecord) -> str | None:
        """Return the URL of the sweep's runs for a browser; None until MLflow has answered.

        Never waits for MLflow: waiting would delay the sweep's next command, for example a cancel.
        """
        if found := self._found.pop(sweep.id, None):
            return found
        if sweep.plan and sweep.id not in self._tasks and monotonic() >= self._not_before:
            tags = experiment_tags(sweep, sweep.plan, self._katib_ui)
            task = asyncio.create_task(self._open(sweep.id, sweep.plan.results_name, tags))
            self._tasks[sweep.id] = task
            task.add_done_callback(lambda _: self._tasks.pop(sweep.id))
        return None

    async def ready(self, sweep: SweepRecord) -> None:
        """Wait up to CREATE_TIMEOUT seconds until the experiment that `open` requested exists.

        MLflow's client fails when two trials create an experiment of one name at the same moment
        (RESOURCE_ALREADY_EXISTS), so it should be there before the first trial.
        """
        if task := self._tasks.get(sweep.id):
            await asyncio.wait([task], timeout=CREATE_TIMEOUT)

    def warm_up(self) -> None:
        """Import MLflow's client beside the event loop; the import takes about three seconds."""
        self._thread.submit(tracking_client, self._tracking_uri)

    async def _open(self, sweep_id: str, name: str, tags: dict[str, str]) -> None:
        async with self._lock:
            if monotonic() < self._not_before:  # the previous call failed
                return
            try:
                with measured("mlflow", operation="open experiment"):
                    number = await asyncio.get_running_loop().run_in_executor(
                        self._thread, self._experiment, name, tags
                    )
            except Exception as error:  # noqa: BLE001  MLflow's client raises whatever its transports raise
                log.warning("MLflow unavailable; sweeps run without a link: %s", error)
                self._not_before = monotonic() + RETRY.seconds()
                return
        # Without this query, MLflow 3 opens its page for language model traces.
        self._found[sweep_id] = f"{self._ui}/#/experiments/{number}/runs?workflowType=machine_learning"
        for oldest in list(self._found)[:-MAX_FOUND]:
            del self._found[oldest]
        try:
            await self._wake(sweep_id)
        except RedisError as error:
            log.warning("MLflow link of %s is shown at its next reconcile: %s", sweep_id, error)

    def _experiment(self, name: str, tags: dict[str, str]) -> str:
        return experiment_id(tracking_client(self._tracking_uri), name, tags)


def experiment_id(client: "MlflowClient", name: str, tags: Mapping[str, str]) -> str:
    """Return the experiment's ID; create it, or add missing tags. Blocks."""
    from mlflow.exceptions import MlflowException  # noqa: PLC0415  see tracking_client

    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return str(client.create_experiment(name, tags=dict(tags)))
        except MlflowException:  # another worker or the first trial created it
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
    for key in tags.keys() - found.tags.keys():  # absent if a trial created it
        client.set_experiment_tag(found.experiment_id, key, tags[key])
    return str(found.experiment_id)


def experiment_tags(sweep: SweepRecord, plan: SweepPlan, katib_ui: str = "") -> dict[str, str]:
    """Return the experiment's tags, with a description that MLflow shows as Markdown above its runs."""
    request, requester = sweep.request, sweep.requester
    tags = {
        run_tags.NOTE: _description(sweep, plan, katib_ui),
        run_tags.SWEEP: sweep.id,
        run_tags.OWNER: requester.user_name or requester.user,
        run_tags.OWNER_ID: requester.user,
        run_tags.TEAM: plan.experiment["metadata"]["labels"].get(TEAM_LABEL, ""),
        run_tags.REPOSITORY: plan.repo_url,
        run_tags.BRANCH: request.branch,
        run_tags.COMMIT: plan.pinned,
        run_tags.THREAD: sweep.permalink,
    }
    return {name: value for name, value in tags.items() if value}


def _description(sweep: SweepRecord, plan: SweepPlan, katib_ui: str) -> str:
    request, space = sweep.request, plan.space
    kind, value = ("seeds", request.seeds) if request.seeds else ("space", request.space)
    goals = (f"{goal} `{_without_markup(metric)}`" for metric, goal in space.objectives.items())
    facts = (
        f"branch `{_without_markup(request.branch)}`",
        *([] if plan.branches else [f"commit `{plan.commit[:8]}` ({_without_markup(plan.subject)})"]),
        f"{kind} `{_without_markup(value)}`",
        f"up to {counted(space.max_trials, 'trial')} to {listed(goals)}",
    )
    urls = {"Thread": sweep.permalink, "Katib": ui_link(katib_ui, plan.experiment_ref) if katib_ui else ""}
    links = "".join(f" [{name}]({url})" for name, url in urls.items() if url)
    who = f"Sweep `{sweep.id}`, started by {_without_markup(sweep.requester.user_name)} in Slack"
    return f"{who}: {', '.join(facts)}.{links}"


def _without_markup(text: str) -> str:
    """Return one line of text without Markdown or HTML: branch names and commit messages aren't trusted."""
    return MARKUP.sub(" ", text)[:200].strip()


def tracking_client(tracking_uri: str) -> "MlflowClient":
    os.environ.update(CLIENT_SETTINGS)
    # Imported here: it takes three seconds, and `serve` and `plan` never need it.
    from mlflow import MlflowClient  # noqa: PLC0415

    return MlflowClient(tracking_uri=tracking_uri)
