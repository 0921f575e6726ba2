"""Explain why a build failed, and its fix (memory, disk, registry, base image, git, certificates, pip, uv,
Conda), from Kaniko's log, its pod's exit code, and its Job's status. Pure.

The messages matched are those of osscontainertools/kaniko v1.28.3 (go-git for the context, ggcr for
registries), pip, uv, and the kernel.
"""

import re
from collections import deque
from collections.abc import Iterable

from bot.platform.pod_health.diagnosis import Diagnosis
from bot.platform.pod_health.log_cause import LogCause, find_cause, quoted
from k8s.jobs import Job
from k8s.pods import Pod

STEP = re.compile(r"^INFO\[\d+\] ((?:FROM|RUN|COPY|ADD|WORKDIR|ENV|ARG|USER)\b.*\S)")
# Kaniko's progress lines, and git's progress while cloning.
NOISE = re.compile(
    r"^(?:(?:INFO|WARN)\[\d+\]|$|(?:remote: )?"
    r"(?:(?:Enumerating|Counting|Compressing|Receiving|Resolving) (?:objects|deltas): |Total \d+ \(delta ))"
)
# The executor prints its 82 lines of flags below an error that precedes the build.
EXECUTOR_USAGE = re.compile(r"^Usage:\n  executor \[flags\]$.*", re.MULTILINE | re.DOTALL)
# Kaniko's own error, at its log's end. What a RUN prints, and warnings that Kaniko survived, are none of it.
OWN_ERROR = re.compile(r"^(?:Error: )?error (?:build|check|execut|push|resolv)ing ", re.MULTILINE)
MAX_OWN_ERROR = 5000  # characters: it can quote a registry's page
SURVIVED = re.compile(r"(?:INFO|WARN|ERRO)\[\d")
OUT_OF_MEMORY = (
    "Out of memory (builds get 8 GiB). *Fix:* Split the RUN that installs packages into several; "
    "if it compiles, set `MAX_JOBS=1` in it."
)
DISK = "Out of disk (builds get 60 GiB). *Fix:* Disable caches (`--no-cache-dir`) or install less."
NO_CA = (
    "The builder doesn't trust your company's CA certificate. *Fix:* Ask an admin to set BUILD_CA_CONFIGMAP "
    "(docs/builds.md)."
)
NO_CA_IN_BASE = (
    "The base image doesn't trust your company's CA certificate. *Fix:* Add it in your Dockerfile, or ask an "
    "admin to add it to BASE_IMAGE (docs/builds.md)."
)
CHECK_ADDRESS = (
    "*Fix:* Ask an admin to check its address, and to allow builds to reach it if the address is private "
    "(docs/security.md#network)."
)
COMMAND_FAILED = "The command failed with exit code"
EVICTED = "The node evicted the build. *Fix:* Start the sweep again."

DISK_FULL = r"[Nn]o space left on device"
PUSH = r"\A(?:Error: )?error (?:checking push permission|pushing image)"
PULLED_TOO_OFTEN = "TOOMANYREQUESTS|429 Too Many Requests"
REFUSED = r"UNAUTHORIZED|DENIED|unauthorized: |status code 40[13]\b"
NO_INDEX_FIX = (
    "*Fix:* Ask an admin to check the network, proxy, and package index of builds (docs/builds.md)."
)

# (pattern in the log, cause and fix). The first match counts; {} is the pattern's group.
# Repetitions are bounded, so that a hostile log can't make the search slow.
KANIKO_CAUSES = (
    (r"x509: certificate signed by unknown authority", NO_CA),
    (
        r"x509: (certificate .{1,200})",
        "A server's certificate isn't valid: {}. *Fix:* Ask an admin to correct the certificate.",
    ),
    (
        r"resolving source context: .{0,500}(?:couldn't find remote ref|reference not found)",
        "The branch no longer exists on the git host. *Fix:* Push it again.",
    ),
    (
        r"resolving source context: .{0,500}(?:object not found|not our ref)",
        "The commit no longer exists on the git host (force push?). *Fix:* Start the sweep again.",
    ),
    (
        r"resolving source context: .{0,500}(?:authentication required|authorization failed|invalid auth)",
        "The git host requires credentials. *Fix:* Ask an admin to set `secret:` for this repository.",
    ),
    (
        r"resolving source context: .{0,500}repository not found",
        "Repository not found, or no access. *Fix:* Check its URL and the credentials (`secret:`).",
    ),
    (
        r"resolving source context: (.{0,500}dial tcp .{0,100}timeout)",
        f"Can't read from the git host: {{}}. {CHECK_ADDRESS}",
    ),
    (r"resolving source context: (.{0,500})", "Can't read from the git host: {}."),
    (
        r"gave HTTP response to HTTPS client",
        (
            "The registry serves plain HTTP. *Fix:* If it's your own registry, ask an admin to set "
            "IMAGE_REGISTRY_PLAIN_HTTP=true."
        ),
    ),
    (
        (
            r'"https?://([^/"]{1,300})/[^"]{0,1000}": (?:dial tcp|proxyconnect|Proxy Authentication'
            r"|net/http: (?:TLS handshake timeout|request canceled)|context deadline)"
        ),
        f"The registry {{}} can't be reached from the cluster. {CHECK_ADDRESS}",
    ),
    (
        rf"{PUSH}.{{0,2000}}?(?:{PULLED_TOO_OFTEN})",
        "The registry limits how often it can be called. *Fix:* Start the sweep again later.",
    ),
    (
        PULLED_TOO_OFTEN,
        "The base image's registry limits how often it can be pulled. *Fix:* Mirror it in your own registry.",
    ),
    (
        r"checking push permission .{0,500}NAME_UNKNOWN",
        (
            "The registry doesn't have this image's repository, and creates none at a push. *Fix:* Ask an "
            "admin to create it (docs/registries.md)."
        ),
    ),
    (
        rf"checking push permission.{{0,2000}}?(?:{REFUSED})",
        "The registry rejected the push. *Fix:* Ask an admin to check IMAGE_REGISTRY_PUSH and its Secret.",
    ),
    (
        rf"{PUSH}.{{0,2000}}https?://\S{{1,2000}}:\s(.{{1,300}}?)(?:: <|$)",
        "The push to the registry failed: {}. *Fix:* Ask an admin to check the registry.",
    ),
    (PUSH, "The push to the registry failed. *Fix:* Ask an admin to check the registry."),
    (
        REFUSED,
        "The base image doesn't exist, or requires credentials. *Fix:* Check the name after FROM.",
    ),
    (
        r"MANIFEST_UNKNOWN|NAME_UNKNOWN|status code 404\b",
        "The base image doesn't exist. *Fix:* Check the name and the tag after FROM.",
    ),
    (
        r"no child with platform|exec format error",
        "The base image isn't for linux/amd64. *Fix:* Name another after FROM.",
    ),
    (
        r"(status code 5\d\d|connection reset by peer|stream error|unexpected EOF|\bEOF$)",
        "The base image's registry failed ({}). *Fix:* Start the sweep again.",
    ),
    (DISK_FULL, DISK),
    (
        r"lstat \S{0,200}/buildcontext/(\S{1,200}): no such file",
        (
            "`{}` isn't in the repository, or `.dockerignore` excludes it. *Fix:* Commit it, or correct "
            "`.dockerignore`."
        ),
    ),
    (
        r"parse error on line (\d{1,9}): (.{0,500})",
        "Dockerfile syntax error on line {}. *Fix:* Correct that line.",
    ),
    (r"^(?:Error: )?error [a-z ]{1,40}: (?:error building stage: )?(.{1,300})", "Kaniko failed: {}."),
)
STEP_CAUSES = (
    (
        (
            r"peer certificate: UnknownIssuer|(?i:server certificate verification failed)"
            r"|(?:CERTIFICATE_VERIFY_FAILED|SSL certificate problem)"
            r"(?!.{0,60}(?:expired|not yet valid|[Hh]ostname|address mismatch))"
        ),
        NO_CA_IN_BASE,
    ),
    (DISK_FULL, DISK),
    (
        (
            r"signal: killed|Cannot allocate memory|\bMemoryError|runtime: out of memory|std::bad_alloc"
            r"|Killed signal terminated|\(Kill signal\)|\bKilled(?:$|\s{3})"
        ),
        OUT_OF_MEMORY,
    ),
    (
        (
            r"Credentials not correct for .{1,500}\n\s{0,20}ERROR: Could not find"
            r"|lack of valid authentication credentials"
        ),
        (
            "The package index requires credentials. *Fix:* Ask an admin to set BUILD_NETWORK_SECRET "
            "(docs/builds.md)."
        ),
    ),
    (
        r"connection broken by .{1,1000}\n(?:.{0,1000}\n)?\s{0,20}ERROR: Could not find",
        f"The package index can't be reached; see below. {NO_INDEX_FIX}",
    ),
    (
        r"Temporary failure resolving|dns error",
        f"A host name doesn't resolve; see below. {NO_INDEX_FIX}",
    ),
    (
        r"No matching distribution found for (\S{1,200})|Because (\S{1,200}) was not found in the pack",
        "No matching package: {}. *Fix:* Check its name, its version, and the base image's Python.",
    ),
    (
        r"No interpreter found for Python (.{1,100}?) in ",
        (
            "The base image has no Python {}. *Fix:* Change `requires-python` or `.python-version`, or ask "
            "an admin to change BASE_IMAGE."
        ),
    ),
    (
        r"No solution found when resolving dependencies",
        "Dependency conflict; see below. *Fix:* Change the versions that the log names.",
    ),
    (
        r"[├└]─ (\S{1,200}) .{0,200}does not exist \(perhaps a typo or a missing channel\)",
        (
            "No Conda package for Linux: {}. *Fix:* Check its name, version, and channel; another system's "
            "export needs `conda env export --from-history`."
        ),
    ),
    (
        r"Could not solve for environment specs",
        "Conda packages exclude one another; see below. *Fix:* Change the versions that the log names.",
    ),
    (
        r"Hash mismatch for `?(\S{1,200}?)`?$",
        "Package hash mismatch: {}. *Fix:* Update the lock file, or check the package index.",
    ),
    (
        r"THESE PACKAGES DO NOT MATCH THE HASHES",
        "Package hash mismatch. *Fix:* Update the lock file, or check the package index.",
    ),
    (
        r"lockfile .{0,200}needs to be updated|Unable to find lockfile",
        "`uv.lock` is out of date. *Fix:* Run `uv lock` and commit both files.",
    ),
    (
        r"process to exit: exit status (\d{1,9})",
        f"{COMMAND_FAILED} {{}}; its last lines are below. *Fix:* Correct what they name.",
    ),
)


def explain(log: str, job: Job, pod: Pod | None) -> Diagnosis:
    """Return the failed instruction, cause, and fix, with the end of the log.

    `log`: as `bot.text.terminal` renders it.
    """
    lines = EXECUTOR_USAGE.sub("", log).splitlines()
    cause = _from_status(job, pod) or _from_log(lines) or _fallback(job, pod)
    step = _step(lines)
    shown = "\n".join([line for line in lines if not NOISE.match(line)] or lines)
    printed, own = _parted(shown)
    named = LogCause() if own else find_cause(printed)
    text = f"`{step[:200]}` failed. {cause}" if step else cause
    brief = named.text if cause.startswith(COMMAND_FAILED) and named.text else cause.partition(" *Fix:*")[0]
    return Diagnosis(key="build", text=text, detail=quoted(shown, named), cause=brief.rstrip(".:"))


def _from_status(job: Job, pod: Pod | None) -> str:
    """Return a cause that is not in the log, because the process was killed."""
    if job.message.startswith("DeadlineExceeded"):
        return "The build hit its 30 min limit. *Fix:* Move slow steps into a base image."
    if pod and pod.failure[0] == "Evicted":
        why = pod.failure[1].strip()
        return DISK if "exceed" in why and "ephemeral" in why else f"{EVICTED} Kubernetes says: {why}"
    code, reason, _ = (pod and pod.exit) or (0, "", "")
    return OUT_OF_MEMORY if reason == "OOMKilled" or code == 137 else ""


def _fallback(job: Job, pod: Pod | None) -> str:
    """BackoffLimitExceeded is no cause: a Job without retries always reports it."""
    if pod and pod.exit:
        return f"Kaniko failed with exit code {pod.exit[0]}."
    return "" if job.message.startswith("BackoffLimitExceeded") else f"Kubernetes says: {job.message}."


def _from_log(lines: Iterable[str]) -> str:
    text = "\n".join(line for line in lines if not SURVIVED.match(line))
    _, own = _parted(text)
    for pattern, words in KANIKO_CAUSES if own else STEP_CAUSES:
        if match := re.search(pattern, own or text, re.MULTILINE):
            return words.format(": ".join(filter(None, match.groups())).rstrip("."))
    return ""


def _parted(text: str) -> tuple[str, str]:
    """Return what is above Kaniko's own error, and that error: "" if a RUN failed, which says why."""
    if not (last := deque(OWN_ERROR.finditer(text), 1)):
        return text, ""
    start = last[0].start()
    own = text[start:][:MAX_OWN_ERROR]
    return text[:start], "" if "waiting for process to exit: " in own else own


def _step(lines: list[str]) -> str:
    """Return the last instruction started, if the build failed in one."""
    started = [match[1] for line in lines if (match := STEP.match(line))]
    in_step = any("error building stage" in line for line in lines) or not any(
        "rror" in x for x in lines[-3:]
    )
    return started[-1] if started and in_step else ""
