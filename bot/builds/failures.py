"""Why a build failed, in a researcher's words: from Kaniko's log, its exit and its Job. Pure.

The texts are those of osscontainertools/kaniko v1.28.3 (go-git's for the context, ggcr's for registries), of
pip, uv and the kernel.
"""

import re
from collections.abc import Iterable

from bot.health.diagnosis import Diagnosis
from k8s.jobs import Job
from k8s.pods import Pod

TAIL = 20  # lines of the log that are shown
STEP = re.compile(r"^INFO\[\d+\] ((?:FROM|RUN|COPY|ADD|WORKDIR|ENV|ARG|USER)\b.*\S)")
# Kaniko's own account, and how git counts what it clones.
NOISE = re.compile(
    r"^(?:(?:INFO|WARN)\[\d+\]|$|(?:remote: )?"
    r"(?:(?:Enumerating|Counting|Compressing|Receiving|Resolving) (?:objects|deltas): |Total \d+ \(delta ))"
)
# All of the executor's flags, 82 lines, below an error that it has before it builds.
USAGE = re.compile(r"^Usage:\n  executor \[flags\]$.*", re.MULTILINE | re.DOTALL)
MEMORY = "It ran out of memory (a build gets 8 GiB) and was killed. Split the RUN that installs into several."
DISK = "It ran out of disk (a build gets 60 GiB). Leave caches out (`--no-cache-dir`), or install less."
NO_CA = (
    "The builder does not know your company's certificate. *Fix:* An admin sets BUILD_CA_CONFIGMAP "
    "(docs/builds.md)."
)
NO_CA_IN_BASE = (
    "The base image does not know your company's certificate. *Fix:* Add it in your Dockerfile; an admin "
    "adds it to BASE_IMAGE (docs/builds.md)."
)
OPEN = (
    "*Fix:* An admin must check its address, and, if that is private, open it to builds "
    "(docs/security.md#network)."
)
LOST = "Its node was short of something and ended it. Sweep the commit again."

# What is found in the log -> what it means, and what to do. The first that fits; {} is the group in it.
# Whoever writes the log must not make the search slow: what repeats after a beginning is bounded.
CAUSES = (
    (r"x509: certificate signed by unknown authority", NO_CA),
    (
        r"peer certificate: UnknownIssuer|CERTIFICATE_VERIFY_FAILED|(?i:certificate verification failed)",
        NO_CA_IN_BASE,
    ),
    (r"SSL certificate problem", NO_CA_IN_BASE),
    (
        r"resolving source context: .{0,500}(?:couldn't find remote ref|reference not found)",
        "The branch is gone from the git host. Push it again.",
    ),
    (
        r"resolving source context: .{0,500}(?:object not found|not our ref)",
        "The commit is gone from the git host: was the branch rewritten? Sweep it again.",
    ),
    (
        r"resolving source context: .{0,500}(?:authentication required|authorization failed|invalid auth)",
        "The git host wants credentials. An administrator names a Secret for this repository (`secret:`).",
    ),
    (
        r"resolving source context: .{0,500}repository not found",
        "The git host has no such repository, or hides it.",
    ),
    (
        r"resolving source context: (.{0,500}dial tcp .{0,100}timeout)",
        f"The git host could not be read: {{}}. {OPEN}",
    ),
    (r"resolving source context: (.{0,500})", "The git host could not be read: {}."),
    (
        r"gave HTTP response to HTTPS client",
        "The registry speaks http. An administrator sets IMAGE_REGISTRY_PLAIN_HTTP=true for the own one.",
    ),
    (
        r'"https?://([^/"]+)/v2/[^"]*": (?:dial tcp|net/http: TLS handshake timeout|context deadline)',
        f"The registry {{}} can't be reached from the cluster. {OPEN}",
    ),
    (
        r"TOOMANYREQUESTS",
        "The registry of the base image gives no more for some hours. Put a copy into your own registry.",
    ),
    (
        r"checking push permission",
        "The registry refuses to be pushed to. An administrator looks at IMAGE_REGISTRY_PUSH and its login.",
    ),
    (
        r"failed to push|pushing image",
        "The registry did not take the image. An administrator looks at the registry.",
    ),
    (
        r"(?:UNAUTHORIZED|DENIED).*|unauthorized: .*",
        "The registry of the base image wants a login, or there is no such image.",
    ),
    (
        r"(?:MANIFEST_UNKNOWN|NAME_UNKNOWN)",
        "There is no such base image. Check the name and the tag after FROM.",
    ),
    (r"[Nn]o space left on device", DISK),
    (r"signal: killed|Cannot allocate memory|MemoryError", MEMORY),
    (
        r"No matching distribution found for (\S{1,200})|Because (\S{1,200}) was not found in the pack",
        "There is no package {} that fits. Check its name and version, and the Python of the base image.",
    ),
    (
        r"No interpreter found for Python (.{1,100}?) in ",
        "The base image has no Python {}. Change `requires-python`, or an administrator BASE_IMAGE.",
    ),
    (
        r"No solution found when resolving dependencies",
        "The packages asked for exclude one another; see below.",
    ),
    (
        r"Hash mismatch for `?(\S+?)`?$|THESE PACKAGES DO NOT MATCH THE HASHES",
        "A package is not the one pinned.",
    ),
    (
        r"lockfile .{0,200}needs to be updated|Unable to find lockfile",
        "`uv.lock` does not fit `pyproject.toml`. Run `uv lock` and commit both.",
    ),
    (
        r"lstat \S{0,200}/buildcontext/(\S{1,200}): no such file",
        "`{}` is not in the repository, or `.dockerignore` keeps it out.",
    ),
    (r"parse error on line (\d{1,9}): (.{0,500})", "The Dockerfile can't be read: line {}."),
    (r"process to exit: exit status (\d{1,9})", "The command ended with exit code {}."),
)


def explain(log: str, job: Job, pod: Pod | None) -> Diagnosis:
    """The failing instruction, the cause and what to do, then the last lines.

    `log`: as `bot.core.terminal` shows it.
    """
    lines = USAGE.sub("", log).splitlines()
    cause = _from_outside(job, pod) or _from_log(lines) or _at_least(job, pod)
    step = _step(lines)
    text = f"`{step[:200]}` failed. {cause}" if step else cause
    return Diagnosis(key="build", text=text, detail=_tail(lines))


def _from_outside(job: Job, pod: Pod | None) -> str:
    """What the log can't say, because its writer was killed."""
    if job.message.startswith("DeadlineExceeded"):
        return "It took more than half an hour and was ended. Move what takes long into a base image."
    if pod and pod.failure[0] == "Evicted":
        why = pod.failure[1].strip()
        return DISK if "exceed" in why and "ephemeral" in why else f"{LOST} Kubernetes says: {why}"
    code, reason, _ = (pod and pod.exit) or (0, "", "")
    return MEMORY if reason == "OOMKilled" or code == 137 else ""


def _at_least(job: Job, pod: Pod | None) -> str:
    """A Job that may not try again always says that it has tried too often; other reasons say something."""
    if pod and pod.exit:
        return f"Kaniko ended with exit code {pod.exit[0]}."
    return "" if job.message.startswith("BackoffLimitExceeded") else f"Kubernetes says: {job.message}."


def _from_log(lines: Iterable[str]) -> str:
    text = "\n".join(line for line in lines if not line.startswith("INFO["))
    for pattern, words in CAUSES:
        if match := re.search(pattern, text, re.MULTILINE):
            return words.format(": ".join(filter(None, match.groups())))
    return ""


def _step(lines: list[str]) -> str:
    """The last instruction begun, if the failure was in the carrying out of one."""
    begun = [match[1] for line in lines if (match := STEP.match(line))]
    in_step = any("error building stage" in line for line in lines) or not any(
        "rror" in x for x in lines[-3:]
    )
    return begun[-1] if begun and in_step else ""


def _tail(lines: list[str]) -> str:
    """Without noise, unless there is nothing else."""
    said = [line for line in lines if not NOISE.match(line)] or lines
    return "\n".join(said[-TAIL:])
