"""Explain why a build failed, from Kaniko's log, the exit code of its pod, and the status of its Job. Pure.

The messages matched are those of osscontainertools/kaniko v1.28.3 (go-git for the context, ggcr for
registries), pip, uv, and the kernel.
"""

import re
from collections.abc import Iterable

from bot.platform.pod_health.diagnosis import Diagnosis
from bot.platform.pod_health.log_cause import find_cause, quoted
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
OUT_OF_MEMORY = "Out of memory (builds get 8 GiB). *Fix:* Split the RUN that installs packages into several."
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

# (pattern in the log, cause and fix). The first match counts; {} is the pattern's group.
# Repetitions are bounded, so that a hostile log can't make the search slow.
CAUSES = (
    (r"x509: certificate signed by unknown authority", NO_CA),
    (
        r"peer certificate: UnknownIssuer|CERTIFICATE_VERIFY_FAILED|(?i:certificate verification failed)",
        NO_CA_IN_BASE,
    ),
    (r"SSL certificate problem", NO_CA_IN_BASE),
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
        r'"https?://([^/"]+)/v2/[^"]*": (?:dial tcp|net/http: TLS handshake timeout|context deadline)',
        f"The registry {{}} can't be reached from the cluster. {CHECK_ADDRESS}",
    ),
    (
        r"TOOMANYREQUESTS",
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
        r"checking push permission",
        "The registry rejected the push. *Fix:* Ask an admin to check IMAGE_REGISTRY_PUSH and its Secret.",
    ),
    (
        r"failed to push|pushing image",
        "The push to the registry failed. *Fix:* Ask an admin to check the registry.",
    ),
    (
        r"(?:UNAUTHORIZED|DENIED).*|unauthorized: .*",
        "The base image doesn't exist, or requires credentials. *Fix:* Check the name after FROM.",
    ),
    (
        r"(?:MANIFEST_UNKNOWN|NAME_UNKNOWN)",
        "The base image doesn't exist. *Fix:* Check the name and the tag after FROM.",
    ),
    (r"[Nn]o space left on device", DISK),
    (r"signal: killed|Cannot allocate memory|MemoryError", OUT_OF_MEMORY),
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
    named = find_cause(shown)
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
    text = "\n".join(line for line in lines if not line.startswith("INFO["))
    for pattern, words in CAUSES:
        if match := re.search(pattern, text, re.MULTILINE):
            return words.format(": ".join(filter(None, match.groups())))
    return ""


def _step(lines: list[str]) -> str:
    """Return the last instruction started, if the build failed in one."""
    started = [match[1] for line in lines if (match := STEP.match(line))]
    in_step = any("error building stage" in line for line in lines) or not any(
        "rror" in x for x in lines[-3:]
    )
    return started[-1] if started and in_step else ""
