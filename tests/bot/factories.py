"""Sweeps for tests: one request, one plan, records in any phase."""

from dataclasses import replace
from datetime import UTC, datetime

from bot.core.record import Phase, SweepRecord
from bot.core.request import Requester, SweepRequest
from bot.core.space import Goal, Parameter, SearchSpace
from bot.platform.config.elastic import ElasticDeployment
from bot.platform.config.policy import Config
from bot.platform.config.repositories import Repository
from bot.platform.config.settings import Settings
from bot.sweep.builds.jobs import Source
from bot.sweep.launch.plan import Order, plan

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
COMMIT = "0123456789abcdef0123456789abcdef01234567"
ADMIN, OWNER, STRANGER = "UADMIN", "UOWNER", "USTRANGER"
REPOSITORY = Repository(name="digits", url="https://git.example/digits.git")
CONFIG = Config(repositories=(REPOSITORY,), admins=(ADMIN,), images=("registry:5000/lab/",), gate=False)
SETTINGS = Settings(
    slack_bot_token="xoxb-1",
    slack_app_token="xapp-1",
    redis_url="redis://redis",
    sweepbot_config="config.yaml",
    k8s_namespace="sweeps",
    image_registry="registry:5000",
    mlflow_tracking_uri="http://mlflow:5000",
)
REQUEST = SweepRequest(branch="main", space="lr")
SPACE = SearchSpace(
    name="lr",
    command="python train.py",
    metric="val_loss",
    goal=Goal.MINIMIZE,
    max_trials=4,
    parallel=2,
    max_failed=2,
    parameters=(
        Parameter(name="lr", min=1e-4, max=0.1, log=True),
        Parameter(name="layers", min=1, max=4, integer=True),
        Parameter(name="optimizer", values=("adam", "sgd")),
    ),
)
FILES = {"Dockerfile": "FROM python:3.11-slim"}
SOURCE = Source(
    repository=REPOSITORY, ref="refs/heads/main", commit=COMMIT, subject="Try a wider net", files=FILES
)
ORDER = Order(
    sweep="lr-brave-otter", owner=OWNER, request_id="trigger-1", request=REQUEST, source=SOURCE, space=SPACE
)
PLAN = plan(ORDER, SETTINGS)


def a_sweep(phase=Phase.RECEIVED, *states, **changes):
    """Return a record in this phase, with these states of features and other fields changed."""
    record = SweepRecord(
        id="lr-brave-otter",
        namespace="sweeps",
        request=REQUEST,
        requester=Requester(user=OWNER, user_name="ada", channel="C1", response_url="https://hooks/1"),
        request_id="trigger-1",
        created=NOW,
        since=NOW,
        phase=phase,
    )
    if phase is not Phase.RECEIVED:
        record = replace(record, plan=PLAN)
    if phase not in {Phase.RECEIVED, Phase.OPENING}:
        record = replace(record, thread="1.1")
    return record.put(*states, **changes)


ELASTIC = ElasticDeployment(namespace="serving", deployment="llm", gpus=1, max=6, reserve=0, channel="C1")


async def no_reservations() -> str:
    """What a digest says of reservations without any."""
    return ""
