"""Build the one message of an environment or a service: its state, its waits, and its buttons, also the
warning that it is idle, and its line in lists. Pure.
"""

from dataclasses import dataclass, field

from bot.platform.pod_health.diagnosis import Diagnosis
from bot.platform.slack.blocks import Block, actions, button, context, plain_text, section
from bot.platform.slack.message import Message
from bot.platform.slack.mrkdwn import code, finding_text, link, local_time, mention, plain, quoted
from bot.text.wording import counted
from bot.workspaces.environments.diagnosis import Stage
from bot.workspaces.environments.record import Environment, EnvironmentRecord, Wanted
from bot.workspaces.services.snippet import partly, sizes

# The buttons' action_ids; the value is the environment's name
OPEN, KEEP, STOP = "open_environment", "keep_environment", "stop_environment"
START, DELETE = "start_environment", "delete_environment"
KEEP_HOURS = 24
STAGES = (Stage.NODE, Stage.VOLUME, Stage.IMAGE, Stage.SERVER)


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What the cluster shows of an environment."""

    stage: Stage = Stage.NODE
    has_pod: bool = False  # set if it shall stop or is deleted, as `has_home`
    has_home: bool = False
    node: str = ""
    problem: Diagnosis | None = None
    ready: int = 0  # pods of a service; the rest is set for services only
    address: str = ""  # in the cluster
    url: str = ""  # "": it has no Ingress
    took: dict[str, float] = field(default_factory=dict)  # seconds by stage, if it just became ready


def message(record: EnvironmentRecord, seen: Observed) -> Message:
    emoji, state = _state(record, seen)
    lines = [f"{emoji} *{record.name}* · {state}", _subject(record), *_details(record, seen)]
    footer = [context(text)] if (text := _footer(record, seen)) else []
    buttons = _buttons(record, seen)
    row = [actions(*buttons)] if buttons else []
    return Message(text=f"{record.name}: {state}", blocks=(section("\n".join(lines)), *footer, *row))


def _state(record: EnvironmentRecord, seen: Observed) -> tuple[str, str]:
    by = f" by {mention(record.by)}" if record.by else ""
    if record.wanted is Wanted.DELETED:
        return ":no_entry_sign:", f"Deleted{by}"
    if record.wanted is Wanted.STOPPED:
        why = f": {quoted(record.reason, 600)}" if record.reason else ""
        if seen.has_pod:
            return ":octagonal_sign:", f"Stopping{by}{why}"
        return (":x:" if record.reason and record.ready_at is None else ":zzz:"), f"Stopped{by}{why}"
    if seen.stage is Stage.READY:
        return (":zzz:", "Idle") if record.warned_at else (":runner:", "Running")
    if record.service and seen.ready:
        state = partly(record.service, seen.ready, _step(seen.stage, record))
        return ":warning:" if seen.problem else ":runner:", state
    if seen.problem and not seen.problem.soft:
        return ":warning:", f"Can't start: {_step(seen.stage, record)}"
    return (
        ":hourglass_flowing_sand:",
        f"{'Restarting' if record.ready_at else 'Starting'}: {_step(seen.stage, record)}",
    )


def _step(stage: Stage, record: EnvironmentRecord) -> str:
    """Return the current stage with its number: `waiting for a node with 1 GPU (1 of 4)`."""
    per_pod = record.gpus // record.replicas
    gpus = f" with {counted(per_pod, 'free GPU')}" if per_pod else ""
    words = {
        Stage.NODE: f"waiting for a node{gpus}",
        Stage.VOLUME: "mounting volumes" if record.service else "mounting the home",
        Stage.IMAGE: "pulling the image",
        Stage.SERVER: "waiting for the port to accept connections"
        if record.service
        else "waiting for the server to answer",
    }
    return f"{words[stage]} ({STAGES.index(stage) + 1} of {len(STAGES)})"


def _subject(record: EnvironmentRecord) -> str:
    if record.service:
        return f"{sizes(record.service)} · {_owner(record)}"
    gpus = counted(record.gpus, "GPU") if record.gpus else "no GPU"
    machine = f" ({code(record.profile)})" if record.profile else ""
    what = f"{code(record.image)}, size {code(record.size)}, {gpus}{machine}, home {code(record.home)}"
    return f"{what} · {_owner(record)}"


def _details(record: EnvironmentRecord, seen: Observed) -> list[str]:
    if record.wanted is Wanted.DELETED:
        again = f"`/env start {record.name} home={record.home}` reuses it"
        delete = f"`/env delete home {record.home}` deletes its files"
        return [f"Home {code(record.home)} is kept. {again}; {delete}."] if seen.has_home else []
    if record.wanted is Wanted.STOPPED:
        free = "" if seen.has_pod else "No GPUs are allocated."
        kept = "The home is kept." if seen.has_home else ""
        return [f"{free} {kept}".strip()] if free or kept else []
    if seen.stage is not Stage.READY and seen.problem:
        return [*_where(seen), finding_text(seen.problem)]
    return [*_where(seen), *([_idle(record)] if record.warned_at else [])]


def _where(seen: Observed) -> list[str]:
    """Return how to reach a service of which a pod is ready."""
    if not seen.ready:
        return []
    return [f"{code(seen.address)}{' · ' + link(seen.url, seen.url) if seen.url else ''}"]


def _idle(record: EnvironmentRecord) -> str:
    """Return what was measured, and what follows."""
    since = f"Idle since {local_time(record.idle_since)}" if record.idle_since else "Idle"
    end = "Sweepbot doesn't stop it by itself."
    if record.stop_at:
        at, keep = local_time(record.stop_at), f"*Keep {KEEP_HOURS} h*"
        end = f"Sweepbot stops it at {at} unless someone uses it or clicks {keep}. The home is kept."
    return f"{since}: {record.measured}. {end}"


def idle_warning(record: EnvironmentRecord) -> str:
    """Return the reply below its message that notifies the owner."""
    return (
        f":zzz: {mention(record.owner)} {code(record.name)} is idle. {_idle(record)}\n"
        f"*Fix:* Stop it, or click *Keep {KEEP_HOURS} h* above."
    )


def _footer(record: EnvironmentRecord, seen: Observed) -> str:
    if record.wanted is not Wanted.RUNNING:
        return f"Since {local_time(record.since)}"
    if seen.stage is not Stage.READY:
        return f"Requested {local_time(record.since)}"
    parts = [f"Since {local_time(record.ready_at or record.since)}"]
    parts += [f"on {code(seen.node)}"] if seen.node else []
    parts += [took(record.took)] if record.took else []
    parts += [f"kept until {local_time(record.keep_until)}"] if record.keep_until else []
    return " · ".join(parts)


def took(seconds: dict[str, float]) -> str:
    """Return how long a start took, and the share of each stage: `ready in 14 s (node 2 s, image 12 s)`."""
    total = sum(seconds.values())
    shares = [f"{Stage(stage).value} {duration(each)}" for stage, each in seconds.items() if each >= 1]
    return f"ready in {duration(total)}" + (f" ({', '.join(shares)})" if shares else "")


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def _buttons(record: EnvironmentRecord, seen: Observed) -> list[Block]:
    name = record.name
    if record.wanted is Wanted.DELETED:
        return []
    if record.wanted is Wanted.STOPPED:
        home = f" Its home {record.home} and the files in it are kept." if seen.has_home else ""
        title = f"Delete this {record.noun}?"
        delete = _confirm(title, f"Deletes {name}.{home}", "Delete", "Keep it")
        return [button(START, "Start", name), button(DELETE, "Delete", name, style="danger", confirm=delete)]
    home = "" if record.service else " The home is kept."
    released = counted(record.gpus, "GPU") if record.gpus else "its CPU and memory"
    effect = f"Stops all processes of {name} and releases {released}.{home}"
    confirm = _confirm(f"Stop this {record.noun}?", effect, "Stop")
    stop = button(STOP, "Stop", name, style="danger", confirm=confirm)
    if seen.stage is not Stage.READY or record.service:
        return [stop]
    return [button(OPEN, "Open", name, style="primary"), button(KEEP, f"Keep {KEEP_HOURS} h", name), stop]


def _confirm(title: str, text: str, verb: str, deny: str = "Keep running") -> Block:
    words = {"title": title, "text": text, "confirm": verb, "deny": deny}
    return {key: plain_text(each) for key, each in words.items()}


def listing(environments: list[Environment], homes: list[tuple[str, str]], title: str, starter: str) -> str:
    """Return lines for the environments and for homes without one."""
    lines = [_line(each.record, is_ready=each.is_ready) for each in environments]
    unused = [f"• Home {code(name)} ({plain(size)}), not in use" for name, size in homes]
    if not lines and not unused:
        return f"{title}: none. `{starter}` starts one."
    return "\n".join([f"*{title}*", *lines, *unused])


def _line(record: EnvironmentRecord, *, is_ready: bool) -> str:
    state = {Wanted.STOPPED: "stopped", Wanted.DELETED: "being deleted"}.get(
        record.wanted, "running" if is_ready else "starting"
    )
    since = local_time(record.ready_at if is_ready and record.ready_at else record.since)
    gpus = f", {counted(record.gpus, 'GPU')}" if record.gpus else ""
    return f"• {code(record.name)} · {state} since {since} · {code(record.image)}{gpus} · {_owner(record)}"


def _owner(record: EnvironmentRecord) -> str:
    return quoted(record.owner_name, 80) or mention(record.owner)
