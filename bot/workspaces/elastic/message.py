"""Build the one message of an elastic Deployment: its replicas, why their number changed, when the next one
follows, why it isn't scaled, or is paused, with Resume scaling. Pure.
"""

from dataclasses import dataclass
from datetime import datetime

from bot.core.finding import Finding
from bot.platform.config.elastic import ElasticDeployment
from bot.platform.slack.blocks import actions, button, context, section
from bot.platform.slack.message import Message
from bot.platform.slack.mrkdwn import code, finding_text, local_time
from bot.text.wording import counted, listed
from bot.workspaces.elastic.records import ElasticRecord, Reason
from bot.workspaces.elastic.resume import RESUME, value_of
from bot.workspaces.elastic.supply import Supply
from k8s.nodes.scheduling import ScheduledPod


@dataclass(frozen=True, kw_only=True)
class ElasticView:
    replicas: int = 0  # as requested
    supply: Supply | None = None  # None: unknown, because the watch is interrupted
    raise_at: datetime | None = None  # when the next replica follows
    problem: Finding | None = None  # why Sweepbot doesn't scale the Deployment


MAX_NAMES = 3


def message(config: ElasticDeployment, record: ElasticRecord, view: ElasticView) -> Message:
    name = f"{code(config.deployment)} in {code(config.namespace)}"
    emoji, state = _state(config, record, view)
    lines = [f"{emoji} *{name}*: {state}", *_details(config, record, view)]
    blocks = [section("\n".join(lines)), context(_footer(config))]
    if record.found is not None and not view.problem:
        value = value_of(config.key, record.found)
        blocks.insert(1, actions(button(RESUME, "Resume scaling", value)))
    return Message(text=f"{emoji} {name}: {state}", blocks=tuple(blocks))


def removed(key: str) -> Message:
    namespace, _, deployment = key.partition("/")
    name = f"{code(deployment)} in {code(namespace)}"
    return Message(text=f":no_entry_sign: {name} isn't in `elastic:` anymore. Sweepbot doesn't scale it.")


def names(pods: tuple[ScheduledPod, ...]) -> tuple[str, ...]:
    """Return the sweeps of these pods, and the names of pods outside sweeps, each once."""
    return tuple(dict.fromkeys(pod.sweep or pod.key for pod in pods))


def _state(config: ElasticDeployment, record: ElasticRecord, view: ElasticView) -> tuple[str, str]:
    if view.problem:
        return ":warning:", "not scaled"
    if record.found is not None:
        return ":warning:", "scaling is paused"
    if view.supply is None:
        return ":warning:", f"{counted(view.replicas, 'replica')} requested, no current data"
    running, starting = view.supply.ready, view.supply.running - view.supply.ready
    more = [f"{starting} starting"] if starting else []
    waiting = view.replicas - view.supply.running
    more += [f"{waiting} waiting for {config.follows}"] if waiting > 0 else []
    verb = "runs" if running == 1 else "run"
    text = f"{running} of max {counted(config.max, 'replica')} {verb}{''.join(f', {each}' for each in more)}"
    return (":runner:" if running else ":hourglass_flowing_sand:"), text


def _details(config: ElasticDeployment, record: ElasticRecord, view: ElasticView) -> list[str]:
    if view.problem:
        return [finding_text(view.problem)]
    if record.found is not None:
        return [finding_text(_pause(config, record))]
    if view.supply is None:
        return ["The watch of the cluster's pods is interrupted. Until it is back, nothing changes."]
    lines = [_pressure(config, view.supply)] if view.supply.pressure else []
    lines += [_change(config, record)] if record.changed_at else []
    if view.raise_at:
        lines += [f"Next replica: {local_time(view.raise_at)}, if the {config.follows} stay free."]
    return lines


def _pause(config: ElasticDeployment, record: ElasticRecord) -> Finding:
    who = f"`{record.found_by.replace('`', 'ˋ')}`" if record.found_by else "Someone else"
    command = f"kubectl -n {config.namespace} scale deployment/{config.deployment}"
    return Finding(
        f"{who} changed the number of replicas from {record.replicas} to {record.found}.",
        f"An admin, or the namespace's team, can click *Resume scaling* to continue from {record.found}. "
        f"To return to {record.replicas}, run `{command} --replicas={record.replicas}`.",
    )


def _pressure(config: ElasticDeployment, supply: Supply) -> str:
    nominated, pressing = names(supply.nominated), names(supply.pressing)
    if nominated:
        return f"The scheduler is giving {config.follows} to {_listed(nominated)}."
    wait = "waits" if len(pressing) == 1 else "wait"
    return f"{_listed(pressing)} {wait} for {config.follows} of these replicas."


def _change(config: ElasticDeployment, record: ElasticRecord) -> str:
    verb = "Raised" if (record.replicas or 0) > record.changed_from else "Lowered"
    why = {
        Reason.FREE: f"{config.follows} were free",
        Reason.GIVEN: f"{config.follows} given to {_listed(record.given)}",
        Reason.RESERVE: "less was free than the reserve"
        if config.reserve
        else f"others have the {config.follows}",
        Reason.LIMITS: "below `min`" if verb == "Raised" else "above `max`",
    }
    when = f" at {local_time(record.changed_at)}" if record.changed_at else ""
    reason = f": {why[record.reason]}" if record.reason else ""
    return f"{verb} from {record.changed_from} to {record.replicas}{when}{reason}."


def _listed(found: tuple[str, ...]) -> str:
    shown = [code(each, 100) for each in found[:MAX_NAMES]]
    rest = len(found) - MAX_NAMES
    return listed([*shown, *([f"{rest} more"] if rest > 0 else [])])


def _footer(config: ElasticDeployment) -> str:
    size = f"{counted(config.gpus, 'GPU')} per replica" if config.gpus else "Follows free CPUs"
    return f"{size} · min {config.min} · max {config.max} · reserve {counted(config.reserve, 'replica')}"
