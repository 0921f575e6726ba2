"""Why a build failed: the logs are Kaniko's (v1.28.3), pip's and uv's own."""

import pytest

from bot.buildlog import explain
from k8s.jobs import Job, JobState
from k8s.pods import Pod

JOB = Job(
    name="build", uid="u", state=JobState.FAILED, message="BackoffLimitExceeded: it has tried too often"
)
BEGUN = """\
\x1b[36mINFO\x1b[0m[0001] Retrieving image manifest python:3.11-slim
\x1b[36mINFO\x1b[0m[0004] RUN pip install -r requirements.txt
\x1b[36mINFO\x1b[0m[0004] Cmd: /bin/sh
\x1b[36mINFO\x1b[0m[0004] Args: [-c pip install -r requirements.txt]
\x1b[36mINFO\x1b[0m[0004] Running: [/bin/sh -c pip install -r requirements.txt]
"""
STAGE = "error building image: error building stage: failed to execute command: waiting for process to exit: "
CONTEXT = "Error: error resolving source context: "
PUSH = (
    "error checking push permissions -- make sure you entered the correct tag name, and that you are "
    'authenticated correctly, and try again: checking push permission for "reg/x:1": POST '
    "https://reg/v2/x/blobs/uploads/: DENIED: requested access to the resource is denied"
)
NO_FILE = "error building image: failed to optimize instructions: failed to get files used from context: "
DATA = "/kaniko/buildcontext/data.csv"
FULL = "OSError: [Errno 28] No space left on device"
CASES = {
    "an exit code": (
        f"{BEGUN}oh no\n{STAGE}exit status 2",
        "`RUN pip install -r requirements.txt` failed. The",
    ),
    "said by its number": (f"{BEGUN}oh no\n{STAGE}exit status 2", "ended with exit code 2."),
    "no such package": (
        f"{BEGUN}ERROR: No matching distribution found for torch==9.9\n{STAGE}exit status 1",
        "There is no package torch==9.9 that fits.",
    ),
    "no such package, uv": (
        "Because numpi was not found in the package registry and you require numpi, we can conclude",
        "There is no package numpi that fits.",
    ),
    "packages that exclude one another": (
        "  × No solution found when resolving dependencies:",
        "exclude one another",
    ),
    "a stale lock": (
        "error: The lockfile at `uv.lock` needs to be updated, but `--frozen` was provided.",
        "Run `uv lock`",
    ),
    "no such branch": (f"{CONTEXT}reference not found\nUsage:\n  executor [flags]\n", "The branch is gone"),
    "no such commit": (f"{CONTEXT}object not found\nUsage:\n", "The commit is gone"),
    "a private repository": (
        f"{CONTEXT}authentication required\nUsage:\n",
        "names a Secret for this repository",
    ),
    "no such repository": (f"{CONTEXT}repository not found\n", "has no such repository"),
    "a git host that is down": (
        f"{CONTEXT}dial tcp: i/o timeout\n",
        "could not be read: dial tcp: i/o timeout.",
    ),
    "no such base": (
        "error building image: error building stage: GET https://index.docker.io/v2/x: MANIFEST_UNKNOWN: no",
        "There is no such base image.",
    ),
    "a base that wants a login": (
        "error building image: GET https://ghcr.io/v2/x/manifests/1: UNAUTHORIZED: authentication required",
        "wants a login",
    ),
    "a registry that refuses": (PUSH, "The registry refuses to be pushed to."),
    "a push that breaks off": (
        "error pushing image: failed to push to destination reg/x:1: write tcp: broken pipe",
        "The registry did not take the image.",
    ),
    "a full disk": (f"{BEGUN}{FULL}\n{STAGE}exit status 1", "ran out of disk"),
    "a killed step": (f"{BEGUN}{STAGE}signal: killed", "ran out of memory"),
    "a file that is not there": (
        f"{NO_FILE}failed to get fileinfo for {DATA}: lstat {DATA}: no such file or directory",
        "`data.csv` is not in the repository, or `.dockerignore` keeps it out.",
    ),
    "a broken Dockerfile": (
        "error building image: parsing dockerfile: parse error on line 3: unknown instruction: FOO",
        "The Dockerfile can't be read: line 3: unknown instruction: FOO.",
    ),
}


def a_pod(**facts):
    return Pod(
        **{"name": "build-x", "job": "build", "node": "n", "deleting": False, "finished": True, **facts}
    )


@pytest.mark.parametrize("case", CASES)
def test_a_failure_is_told_with_what_to_do(case):
    log, told = CASES[case]
    assert told in explain(log, JOB, a_pod(exit=(1, "Error", ""))).text


@pytest.mark.parametrize(
    ("pod", "job", "told"),
    [
        (a_pod(exit=(137, "OOMKilled", "")), JOB, "ran out of memory"),
        (a_pod(exit=(137, "Error", "")), JOB, "ran out of memory"),
        (a_pod(failure=("Evicted", "Pod ephemeral local storage usage exceeds")), JOB, "ran out of disk"),
        (
            None,
            Job(name="b", uid="u", state=JobState.FAILED, message="DeadlineExceeded: Job was active"),
            "took more than half an hour",
        ),
        (a_pod(exit=(3, "Error", "")), JOB, "Kaniko ended with exit code 3."),
        (
            None,
            Job(name="b", uid="u", state=JobState.FAILED, message="Odd: why"),
            "Kubernetes says: Odd: why.",
        ),
    ],
)
def test_what_a_log_cannot_say(pod, job, told):
    assert told in explain("", job, pod).text


def test_the_last_lines_are_those_of_the_step_and_not_kanikos_own():
    shown = explain(f"{BEGUN}Collecting torch\nERROR: no\n{STAGE}exit status 1", JOB, None).detail
    assert shown.splitlines() == ["Collecting torch", "ERROR: no", f"{STAGE}exit status 1"]


def test_a_log_of_kanikos_own_lines_is_better_than_none():
    assert "Retrieving image manifest" in explain(BEGUN, JOB, None).detail
