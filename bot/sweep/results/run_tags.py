"""Tags that name a trial's MLflow runs and record their origin (`sweepbot.sweep`, `sweepbot.commit`, owner,
team, thread), by MLFLOW_RUN_CONTEXT. Pure.

MLflow sets the JSON object in MLFLOW_RUN_CONTEXT as tags of each run that `mlflow.start_run`, an autologger,
or Lightning's logger creates (mlflow/tracking/context/system_environment_context.py), so training code needs
no change. Tags and a run name given in code win. A run that `MlflowClient.create_run` creates gets no tags.
"""

import json
from collections.abc import Mapping

from k8s.katib.training import TRIAL_NAME

VARIABLE = "MLFLOW_RUN_CONTEXT"
# MLflow's client reads its credentials from these.
LOGIN_VARIABLES = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")
SWEEP, TRIAL, COMMIT = "sweepbot.sweep", "sweepbot.trial", "sweepbot.commit"
BRANCH, REPOSITORY, IMAGE = "sweepbot.branch", "sweepbot.repository", "sweepbot.image"
OWNER, OWNER_ID, TEAM = "sweepbot.owner", "sweepbot.owner_id", "sweepbot.team"
CLUSTER = "sweepbot.cluster"  # only where the configuration has several
THREAD = "sweepbot.thread"  # URL of the sweep's thread in Slack
# MLflow's own tags (mlflow/utils/mlflow_tags.py): the name, user, source, and description on its pages.
RUN_NAME, USER, NOTE = "mlflow.runName", "mlflow.user", "mlflow.note.content"
GIT_COMMIT, GIT_BRANCH, GIT_URL = (f"mlflow.source.git.{each}" for each in ("commit", "branch", "repoURL"))


def planned(
    *,
    sweep: str,
    owner: str,
    owner_id: str,
    team: str,
    repository: str,
    branch: str,
    commit: str,
    cluster: str = "",
) -> dict[str, str]:
    """Return the tags that are known before the build, without empty ones."""
    tags = {
        RUN_NAME: TRIAL_NAME,
        USER: owner or owner_id,
        GIT_COMMIT: commit,
        GIT_BRANCH: branch,
        GIT_URL: repository,
        SWEEP: sweep,
        TRIAL: TRIAL_NAME,
        OWNER: owner or owner_id,
        OWNER_ID: owner_id,
        TEAM: team,
        REPOSITORY: repository,
        BRANCH: branch,
        COMMIT: commit,
        CLUSTER: cluster,
    }
    return {name: value for name, value in tags.items() if value}


def submitted(sweep: str, image: str, thread: str) -> dict[str, str]:
    """Return the tags that are known when the experiment is submitted.

    Args:
        image: "" if trials run several.
        thread: its URL, or "".
    """
    tags = {IMAGE: image} if image else {}
    if thread:
        tags |= {THREAD: thread, NOTE: f"A trial of sweep [{sweep}]({thread})."}
    return tags


def encode(tags: Mapping[str, str]) -> str:
    """Return the variable's value, escaped so that Katib and Kubernetes only replace the trial's name."""
    text = json.dumps(tags).replace("$", "\\u0024")
    return text.replace(TRIAL_NAME.replace("$", "\\u0024"), TRIAL_NAME)


def added(value: str, tags: Mapping[str, str]) -> str:
    """Return the variable's value with more tags."""
    return encode(json.loads(value) | dict(tags))
