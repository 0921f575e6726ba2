"""Why a build failed: the logs are Kaniko's (v1.28.3), pip's and uv's own."""

from bot.sweep.builds.failures import explain
from bot.text.terminal import as_shown
from k8s.jobs import Job, JobState
from k8s.pods import Pod
from local.kaniko.options import USAGE
from tests.cases import cases

JOB = Job(
    name="build", uid="u", state=JobState.FAILED, message="BackoffLimitExceeded: it has tried too often"
)
STARTED = """\
\x1b[36mINFO\x1b[0m[0001] Retrieving image manifest python:3.11-slim
\x1b[36mINFO\x1b[0m[0004] RUN pip install -r requirements.txt
\x1b[36mINFO\x1b[0m[0004] Cmd: /bin/sh
\x1b[36mINFO\x1b[0m[0004] Args: [-c pip install -r requirements.txt]
\x1b[36mINFO\x1b[0m[0004] Running: [/bin/sh -c pip install -r requirements.txt]
"""
STAGE = "error building image: error building stage: failed to execute command: waiting for process to exit: "
CONTEXT = "Error: error resolving source context: "
PUSH = (
    "\x1b[33mWARN\x1b[0m[0000] make sure you entered the correct tag name, that you are authenticated "
    "correctly, and try again. \n"
    'error checking push permissions: checking push permission for "reg:5000/x:1": '
)
DENIED = "POST https://reg:5000/v2/x/blobs/uploads/: DENIED: requested access to the resource is denied"
NO_REPOSITORY = "POST https://reg:5000/v2/x/blobs/uploads/: NAME_UNKNOWN: The repository does not exist"
CHECK = "creating push check transport for reg:5000 failed: "
PLAIN = 'Get "https://reg:5000/v2/": http: server gave HTTP response to HTTPS client'
NO_HOST = 'Get "https://reg.invalid/v2/": dial tcp: lookup reg.invalid on 10.96.0.10:53: no such host'
NO_PYTHON = "error: No interpreter found for Python >=3.12 in managed installations or search path"
LIMIT = (
    "GET https://index.docker.io/v2/library/python/manifests/3.11-slim: TOOMANYREQUESTS: You have reached "
    "your unauthenticated pull rate limit. https://www.docker.com/increase-rate-limit"
)
NO_FILE = "error building image: failed to optimize instructions: failed to get files used from context: "
DATA = "/kaniko/buildcontext/data.csv"
FULL = "OSError: [Errno 28] No space left on device"
UNKNOWN = "tls: failed to verify certificate: x509: certificate signed by unknown authority"
CONDA = "error    libmamba Could not solve for environment specs\n"
BASE = "error building image: "
PULL = f"{BASE}GET https://index.docker.io/v2/library/x/manifests/1: "
UPLOAD = (
    "error pushing image: failed to push to destination reg/x:1: "
    "PATCH https://reg/v2/x/blobs/uploads/e9?_state=REDACTED: "
)
UNSENT = "WARN[0091] Error uploading layer to cache: failed to push to destination reg/x:1: status code 413\n"
UNREAD = f"ERRO[0000] Error while retrieving image from cache: python:3.11 {LIMIT}\n"
NO_PACKAGE = (
    "ERROR: Could not find a version that satisfies the requirement torch (from versions: none)\n"
    "ERROR: No matching distribution found for torch"
)
RETRY = (
    "WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after "
    "connection broken by 'NewConnectionError('<HTTPSConnection object at 0x7f1d>: Failed to establish a new "
    "connection: [Errno -3] Temporary failure in name resolution')': /simple/torch/\n"
)
REALLY = "The command failed with exit code 1; its last lines"
CASES = {
    "a RUN that speaks of registries": (
        f"{STARTED}ERROR: PERMISSION_DENIED: MANIFEST_UNKNOWN: failed to push\n{STAGE}exit status 1",
        REALLY,
    ),
    "warnings that Kaniko survived": (f"{UNREAD}{STARTED}{UNSENT}oh no\n{STAGE}exit status 1", REALLY),
    "an index that can't be reached": (
        f"{STARTED}{RETRY}{NO_PACKAGE}\n{STAGE}exit status 1",
        "The package index can't be reached",
    ),
    "a package that is missing after a retry": (
        f"{STARTED}{RETRY}Collecting numpy\n  Downloading numpy\n{NO_PACKAGE}\n{STAGE}exit status 1",
        "No matching package: torch.",
    ),
    "an index that wants a login": (
        (
            f"{STARTED}WARNING: 401 Error, Credentials not correct for https://i/simple/torch/\n{NO_PACKAGE}\n"
            f"{STAGE}exit status 1"
        ),
        "The package index requires credentials.",
    ),
    "an index that wants a login, uv": (
        (
            f"{STARTED}Because torch was not found in the package registry and you require torch\n"
            "      hint: An index URL (https://i/simple) could not be queried due to a lack of valid "
            f"authentication credentials (401 Unauthorized).\n{STAGE}exit status 1"
        ),
        "The package index requires credentials.",
    ),
    "a name that doesn't resolve, apt": (
        (
            f"{STARTED}W: Failed to fetch http://deb/x  Temporary failure resolving 'deb'\n"
            f"E: Unable to locate package git\n{STAGE}exit status 100"
        ),
        "A host name doesn't resolve; see below.",
    ),
    "a compiler that is killed": (
        f"{STARTED}c++: fatal error: Killed signal terminated program cc1plus\n{STAGE}exit status 1",
        "set `MAX_JOBS=1` in it",
    ),
    "an expired certificate, for curl": (
        f"{STARTED}curl: (60) SSL certificate problem: certificate has expired\n{STAGE}exit status 60",
        "The command failed with exit code 60",
    ),
    "an expired certificate, for the registry": (
        f'{PUSH}Get "https://reg:5000/v2/": tls: failed to verify certificate: x509: certificate has expired',
        "A server's certificate isn't valid: certificate has expired. *Fix:* Ask an admin",
    ),
    "a registry that is down, at the check": (
        (
            f"{PUSH}POST https://reg:5000/v2/x/blobs/uploads/: unexpected status code 503 Service Unavailable"
            ": <html>\n<h1>503</h1>"
        ),
        "The push to the registry failed: unexpected status code 503 Service Unavailable. *Fix:*",
    ),
    "a registry behind a proxy that is down": (
        f'{PUSH}{CHECK}Get "https://reg:5000/v2/": proxyconnect tcp: dial tcp 10.0.0.1:3128: refused',
        "The registry reg:5000 can't be reached",
    ),
    "a registry that has had enough pushes": (
        f"{PUSH}POST https://reg:5000/v2/x/blobs/uploads/: TOOMANYREQUESTS: Rate exceeded",
        "The registry limits how often it can be called.",
    ),
    "a registry that is full": (
        f"{UPLOAD}DENIED: adding 1 GiB of storage resource will exceed the configured upper limit of 1 GiB.",
        "The push to the registry failed: DENIED: adding 1 GiB of storage resource will exceed the",
    ),
    "a token service out of reach": (
        f'{BASE}Get "https://auth.docker.io/token?scope=x": dial tcp: lookup auth.docker.io: no such host',
        "The registry auth.docker.io can't be reached",
    ),
    "a base whose registry is down": (
        f"{PULL}unexpected status code 500 Internal Server Error",
        "The base image's registry failed (status code 500). *Fix:* Start the sweep again.",
    ),
    "a base whose registry has had enough, as text": (
        f"{PULL}unexpected status code 429 Too Many Requests: x",
        "limits how often it can be pulled",
    ),
    "a base that a registry hides": (
        f"{PULL}unexpected status code 403 Forbidden: x",
        "or requires credentials",
    ),
    "a base for other processors": (
        f"{BASE}no child with platform linux/amd64 in index docker.io/arm64v8/python:3.11",
        "The base image isn't for linux/amd64.",
    ),
    "any other error of Kaniko": (
        f"{BASE}error building stage: failed to take snapshot: archive/tar: write too long",
        "Kaniko failed: failed to take snapshot: archive/tar: write too long.",
    ),
    "an exit code": (
        f"{STARTED}oh no\n{STAGE}exit status 2",
        "`RUN pip install -r requirements.txt` failed. The",
    ),
    "named by its number": (f"{STARTED}oh no\n{STAGE}exit status 2", "failed with exit code 2;"),
    "no such package": (
        f"{STARTED}ERROR: No matching distribution found for torch==9.9\n{STAGE}exit status 1",
        "No matching package: torch==9.9.",
    ),
    "no such package, uv": (
        "Because numpi was not found in the package registry and you require numpi, we can conclude",
        "No matching package: numpi.",
    ),
    "a repository that the registry doesn't create": (
        f"{PUSH}{NO_REPOSITORY}",
        "The registry doesn't have this image's repository, and creates none at a push.",
    ),
    "no such Conda package": (
        f"{CONDA}    └─ numpyy =* * does not exist (perhaps a typo or a missing channel).\n{STAGE}exit 1",
        "No Conda package for Linux: numpyy.",
    ),
    "Conda packages that exclude one another": (
        f"{CONDA}    └─ pytorch-gpu >=2.0 * is not installable\n{STAGE}exit status 1",
        "Conda packages exclude one another; see below.",
    ),
    "packages that exclude one another": (
        "  × No solution found when resolving dependencies:",
        "Dependency conflict; see below. *Fix:* Change the versions that the log names.",
    ),
    "a stale lock": (
        "error: The lockfile at `uv.lock` needs to be updated, but `--locked` was provided.",
        "Run `uv lock`",
    ),
    "a Python that the base has not": (
        f"{NO_PYTHON}\n{STAGE}exit status 2",
        "The base image has no Python >=3.12.",
    ),
    "no such branch": (
        f'{CONTEXT}couldn\'t find remote ref "refs/heads/nope"{USAGE}',
        "branch no longer exists",
    ),
    "no such commit": (f"{CONTEXT}object not found{USAGE}", "The commit no longer exists"),
    "a private repository": (
        f"{CONTEXT}authentication required: {USAGE}",
        "Ask an admin to set `secret:` for this repository",
    ),
    "no such repository": (f"{CONTEXT}repository not found: {USAGE}", "Repository not found, or no access."),
    "a git host that is down": (
        f'{CONTEXT}Get "https://git/x.git/info/refs?service=git-upload-pack": dial tcp: i/o timeout{USAGE}',
        "Can't read from the git host: Get",
    ),
    "a git host behind a network policy": (
        f'{CONTEXT}Get "https://git/x.git/info/refs": dial tcp 10.1.2.3:443: i/o timeout{USAGE}',
        "allow builds to reach it if the address is private (docs/security.md#network)",
    ),
    "no such base": (
        "error building image: error building stage: GET https://index.docker.io/v2/x: MANIFEST_UNKNOWN: no",
        "The base image doesn't exist. *Fix:*",
    ),
    "a base that wants a login": (
        "error building image: GET https://ghcr.io/v2/x/manifests/1: UNAUTHORIZED: authentication required",
        "or requires credentials.",
    ),
    "a base whose registry has had enough": (
        f"error building image: error building stage: {LIMIT}",
        "limits how often it can be pulled",
    ),
    "a base out of reach": (
        f"error building image: {NO_HOST.replace('reg.invalid', 'index.docker.io')}",
        "The registry index.docker.io can't be reached from the cluster.",
    ),
    "a registry that refuses": (f"{PUSH}{DENIED}", "The registry rejected the push."),
    "a registry that is nowhere": (f"{PUSH}{CHECK}{NO_HOST}", "The registry reg.invalid can't be reached"),
    "a registry without TLS": (
        f"{PUSH}{CHECK}{PLAIN}",
        "The registry serves plain HTTP. *Fix:* If it's your own registry, ask an admin",
    ),
    "a push that breaks off": (
        "error pushing image: failed to push to destination reg/x:1: write tcp: broken pipe",
        "The push to the registry failed.",
    ),
    "a company's certificate, for git": (
        f'{CONTEXT}Get "https://git/": {UNKNOWN}{USAGE}',
        "BUILD_CA_CONFIGMAP",
    ),
    "a company's certificate, for the registry": (
        f'{PUSH}Get "https://reg:5000/v2/": {UNKNOWN}',
        "BUILD_CA_CONFIGMAP",
    ),
    "a company's certificate, for uv": (
        f"{STARTED}  Caused by: invalid peer certificate: UnknownIssuer\n{STAGE}exit status 2",
        "The base image doesn't trust your company's CA certificate.",
    ),
    "a company's certificate, for pip": (
        f"{STARTED}[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed\n{STAGE}exit status 1",
        "The base image doesn't trust your company's CA certificate.",
    ),
    "a full disk": (f"{STARTED}{FULL}\n{STAGE}exit status 1", "Out of disk"),
    "a killed step": (f"{STARTED}{STAGE}signal: killed", "Out of memory"),
    "a file that is not there": (
        f"{NO_FILE}failed to get fileinfo for {DATA}: lstat {DATA}: no such file or directory",
        "`data.csv` isn't in the repository, or `.dockerignore` excludes it. *Fix:* Commit it",
    ),
    "a broken Dockerfile": (
        "error building image: parsing dockerfile: parse error on line 3: unknown instruction: FOO",
        "Dockerfile syntax error on line 3: unknown instruction: FOO.",
    ),
}


def a_pod(**facts):
    return Pod(**{"name": "build-x", "job": "build", "node": "n", "finished": True, **facts})


def evicted(message):
    return a_pod(failure=("Evicted", message))


LOW = "The node was low on resource: "
FULL_DISK = "Out of disk (builds get 60 GiB)."


def explained(log, job, pod):
    """As logs come in."""
    return explain(as_shown(log), job, pod)


@cases("case", CASES)
def test_failure_is_reported_with_its_fix(case):
    log, reported = CASES[case]
    assert reported in explained(log, JOB, a_pod(exit=(1, "Error", ""))).text


@cases(
    ("pod", "job", "reported"),
    [
        (a_pod(exit=(137, "OOMKilled", "")), JOB, "Out of memory"),
        (a_pod(exit=(137, "Error", "")), JOB, "Out of memory"),
        (
            evicted("Pod ephemeral local storage usage exceeds the total limit of containers 60Gi. "),
            JOB,
            FULL_DISK,
        ),
        (evicted('Container kaniko exceeded its local ephemeral storage limit "60Gi". '), JOB, FULL_DISK),
        (
            evicted(f"{LOW}memory. Threshold quantity: 100Mi, available: 90Mi. "),
            JOB,
            f"Kubernetes says: {LOW}memory.",
        ),
        (evicted(f"{LOW}pids. "), JOB, "The node evicted the build."),
        (
            None,
            Job(name="b", uid="u", state=JobState.FAILED, message="DeadlineExceeded: Job was active"),
            "hit its 30 min limit",
        ),
        (a_pod(exit=(3, "Error", "")), JOB, "Kaniko failed with exit code 3."),
        (
            None,
            Job(name="b", uid="u", state=JobState.FAILED, message="Odd: why"),
            "Kubernetes says: Odd: why.",
        ),
    ],
)
def test_failure_without_a_usable_log_has_no_cause(pod, job, reported):
    assert reported in explain("", job, pod).text


def test_failed_command_without_a_named_cause_is_not_blamed_on_kaniko():
    assert explained(f"{STARTED}Collecting x\n{STAGE}exit status 9", JOB, None).cause == (
        "The command failed with exit code 9; its last lines are below"
    )
    log = f"{STARTED}nvcc fatal   : Unsupported gpu architecture 'compute_89'\n"
    log += f"RuntimeError: Error compiling objects for extension\n{STAGE}exit status 1"
    assert explained(log, JOB, None).cause == "nvcc fatal : Unsupported gpu architecture 'compute_89'"


def test_failure_shows_the_last_lines_of_the_step():
    shown = explained(f"{STARTED}Collecting torch\nERROR: no\n{STAGE}exit status 1", JOB, None).detail
    assert shown.splitlines() == ["Collecting torch", "ERROR: no", f"{STAGE}exit status 1"]
    assert "Retrieving image manifest" in explained(STARTED, JOB, None).detail
    log = f"\x1b[36mINFO\x1b[0m[0000] active feature flags: FF_X \n{CONTEXT}object not found{USAGE}"
    assert explained(log, JOB, None).detail == f"{CONTEXT}object not found"
    log = f"{STARTED}Usage:\n  train FILE\n{STAGE}exit status 2"
    assert explained(log, JOB, None).detail.splitlines()[:2] == ["Usage:", "  train FILE"]
    log = (
        "Enumerating objects: 26, done.\n"
        "Counting objects:   3% (1/26)\rCounting objects: 100% (26/26), done.\n"
        "Compressing objects:  46% (12/26)\rCompressing objects: 100% (26/26), done.\n"
        "Total 26 (delta 3), reused 20 (delta 1), pack-reused 0 (from 0)\n"
        f"{STARTED}  0%|   | 0/9\r 50%|#  | 4/9\r100%|###| 9/9\r\nERROR: no\n{STAGE}exit status 1"
    )
    shown = explained(log, JOB, None).detail
    assert shown.splitlines() == ["100%|###| 9/9", "ERROR: no", f"{STAGE}exit status 1"]
