"""Texts and buttons of warnings: the finding, how it was measured, and what people can do. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from bot.measure.gpus.command import ask_button, load_text
from bot.measure.gpus.models import BUSY, WAITING_BUSY, WAITING_SM, WAITING_WATTS
from bot.platform.slack.blocks import MAX_BUTTON_VALUE, actions, button, context, plain_text, section
from bot.platform.slack.message import Message
from bot.platform.slack.mrkdwn import code, local_time, mention, plain, quoted
from bot.text.number_format import percent
from bot.text.wording import counted, fitting, time_text
from bot.watch.idle.alerts import REPEAT_AT, Alert, AlertItem, Snooze, active_snooze
from bot.watch.idle.detector import GpuAllocation, Kind

# The buttons' action_ids
CANCEL_IDLE, CANCEL_IDLE_GROUP = "warning_cancel", "warning_cancel_many"
SNOOZE_4, SNOOZE_24, UTILIZATION = "warning_keep_4", "warning_keep_24", "warning_measures"
NEEDED = "warning_needed"
NEEDED_HOURS = 24  # of the snooze when an owner answers that a pod is needed
MAX_LIST_SIZE = 2400  # characters of all trials of one message; a section takes 3000
MAX_GPUS = 16  # GPUs in a private reply

CONDITIONS = {
    Kind.UNUSED: "unused for {lasted}",
    Kind.IDLE: "idle for {lasted}",
    Kind.PARTIAL: "idle for {lasted} while the rest are busy",
    Kind.LOW: "underused for {lasted} ({mean} average)",
    Kind.WAITING: "busy for {lasted}, but hardly computing",
    Kind.STUCK: "busy for {lasted} with no log output",
    Kind.FULL: "nearly reached ({mean})",
    Kind.SPARE: "hardly used since the start (max {mean})",
}
NEW_STATES = {
    Kind.UNUSED: "unused",
    Kind.IDLE: "idle",
    Kind.PARTIAL: "partly idle",
    Kind.LOW: "underused",
    Kind.WAITING: "busy, but hardly computing",
    Kind.STUCK: "busy with no log output",
    Kind.FULL: "near its memory limit",
    Kind.SPARE: "hardly using its memory",
}
ADVICE = {
    Kind.UNUSED: "*Check:* Does the program find the GPU and move the model to it? Is it still loading data?",
    Kind.IDLE: "*Check:* Is the program hung, waiting for data, or computing on the CPU?",
    Kind.PARTIAL: "*Fix:* If it can't use all of them, request fewer GPUs (`gpus=` in `/sweep`).",
    Kind.LOW: "*Fix:* Try a larger batch size or more data-loader workers.",
    Kind.WAITING: "*Check:* Does a kernel wait for other workers or data? If not, try a larger batch size.",
    Kind.STUCK: "*Check:* A distributed deadlock looks like this. If it logs elsewhere, snooze the warning.",
    Kind.FULL: "*Fix:* At its limit, the kernel kills it. Use less, or request more for the next sweep.",
    Kind.SPARE: "*Fix:* Choose a profile with less memory for the next sweep: more trials fit on a node.",
}
CPU_ADVICE = {
    Kind.IDLE: "*Check:* Is the program hung, or waiting for data or another service?",
    Kind.LOW: "*Fix:* Use more processes or threads, or choose a profile with fewer CPUs for the next sweep.",
}
CRITERIA = {
    Kind.LOW: "Measured by GPU utilization (share of time the engine is active).",
    Kind.WAITING: (
        f"Utilization, at least {WAITING_BUSY:.0%}, also counts kernels that wait. SM activity below "
        f"{WAITING_SM:.0%} and less than {WAITING_WATTS:.0f} W per GPU show that they hardly compute."
    ),
    Kind.STUCK: "Measured by GPU utilization above 95% and the time of the last log line.",
    Kind.IDLE: f"Idle: no sample above {100 * BUSY:g}% GPU utilization; memory use doesn't count.",
    Kind.FULL: "Measured by the pod's working set, which can include files in the page cache.",
    Kind.SPARE: "Measured by the peak of the pod's working set, within a day.",
}
CPU_CRITERIA = {
    Kind.IDLE: f"Idle: less than {100 * BUSY:g}% of the requested CPUs, as a mean.",
    Kind.LOW: "Measured by CPU time, as a share of the requested CPUs.",
}
_RECOVERED = {
    Kind.STUCK: "logging",
    Kind.WAITING: "computing",
    Kind.FULL: "using less memory",
    Kind.SPARE: "using more memory",
}
STOPS_NONE = "Sweepbot stops no trial because of this warning."
NEVER_STOPS_CPUS = "Sweepbot never stops a trial without GPUs by itself."
NOT_STOPPED = "Sweepbot doesn't stop pods that it didn't start."


def warning(alert: Alert, snoozes: Mapping[str, Snooze], now: datetime) -> Message:
    active = _active(alert, snoozes, now)
    lines = _single(alert, active) if len(alert.items) == 1 else _group(alert, active)
    all_snoozed = all(item.key in active for item in alert.open)
    lines += [*([] if all_snoozed else [_advice(alert)]), *_snoozed(alert, active)]
    shown = section("\n".join(lines))
    if not alert.open:
        return Message(text=lines[0], blocks=(shown,))
    how = (CRITERIA if alert.about_gpus else CRITERIA | CPU_CRITERIA).get(alert.kind, CRITERIA[Kind.IDLE])
    stops = _stops(alert) if alert.sweep else NOT_STOPPED
    below = context(f"{how} {stops}")
    return Message(text=lines[0], blocks=(shown, below, _buttons(alert, all_snoozed)))


def _stops(alert: Alert) -> str:
    if not alert.about_gpus:
        return NEVER_STOPS_CPUS
    after = max((item.stop_after for item in alert.open), default=timedelta(0))
    if not after:
        return STOPS_NONE
    return f"Sweepbot stops idle trials {duration(after)} after their warning, unless someone snoozes it."


def _active(alert: Alert, snoozes: Mapping[str, Snooze], now: datetime) -> dict[str, Snooze]:
    """Return the active snoozes of the alert's items by allocation key."""
    return {item.key: each for item in alert.items if (each := active_snooze(item.key, snoozes, now))}


def _snoozed(alert: Alert, active: Mapping[str, Snooze]) -> list[str]:
    """Name the person without a mention, which would notify them again with each new post."""
    flagged = alert.open or [item for item in alert.items if item.now.needs_alert]
    snoozed = [active[item.key] for item in flagged if item.key in active]
    if not snoozed:
        return []
    first = min(snoozed, key=lambda snooze: snooze.until)
    who = quoted(first.name, 60) if first.name else mention(first.by)
    part = "" if len(snoozed) == len(flagged) else f" ({len(snoozed)} of {len(flagged)})"
    return [f"Snoozed{part} by {who} until {local_time(first.until)}."]


def _single(alert: Alert, active: Mapping[str, Snooze]) -> list[str]:
    item = alert.items[0]
    who = f"Trial {code(item.name)}" if alert.sweep else _pod(alert, item)
    if item.now is not alert.kind:
        return [f"{_emoji(alert)}{who} {_how_it_ended(alert, item, active)}."]
    since = "since it started," if alert.kind is Kind.UNUSED else "since"
    comma = "" if alert.kind is Kind.UNUSED else ","
    condition = f"{_which(item)} {_condition(alert.kind, [item])}"
    measured = load_text(item.load, item.gpus)
    began = "" if alert.kind in {Kind.FULL, Kind.SPARE} else f"{comma} {since} {local_time(item.since)}"
    first = f"{_flag(alert)} {who}: {condition}{began}."
    return [first, *([f"{measured[0].upper()}{measured[1:]}."] if measured else [])]


def _emoji(alert: Alert) -> str:
    """Ended while idle is neither a warning nor a recovery."""
    if any(item.now.needs_alert for item in alert.items):
        return ":zzz: "
    well = all(item.now is Kind.FINE or item.recovered for item in alert.items)
    return ":white_check_mark: " if well else ""


def _advice(alert: Alert) -> str:
    if alert.asked_by:
        asker = mention(alert.asked_by)
        return f"{asker} asks whether you still need it. If not, stop it; others may be waiting for GPUs."
    if any(item.level == REPEAT_AT[-1] for item in alert.open) and alert.kind in {Kind.UNUSED, Kind.IDLE}:
        what = "it" if len(alert.open) == 1 else "them"
        end = f"{'Cancel' if alert.sweep else 'Stop'} {what}, or snooze if you need {what}"
        return f"*Still idle.* {end}; others may be waiting for {'GPUs' if alert.about_gpus else 'CPUs'}."
    return (ADVICE if alert.about_gpus else ADVICE | CPU_ADVICE)[alert.kind]


def _group(alert: Alert, active: Mapping[str, Snooze]) -> list[str]:
    still, total = alert.open, counted(len(alert.items), "trial" if alert.sweep else "pod")
    if still:
        head = f"{_flag(alert)} {len(still)} of {total}: {_subject(alert)} {_condition(alert.kind, still)}"
    elif any(item.now.needs_alert for item in alert.items):
        head = f":zzz: Changed: {total}"
    else:
        head = f"{_emoji(alert)}No longer flagged: {total}"
    lines = [
        f"• {_state(alert, item, active)}" for item in sorted(alert.items, key=lambda item: item not in still)
    ]
    return [head, *fitting(lines, MAX_LIST_SIZE)]


def _state(alert: Alert, item: AlertItem, active: Mapping[str, Snooze]) -> str:
    if item.now is not alert.kind:
        return f"{code(item.name)} {_how_it_ended(alert, item, active)}"
    where = plain(", ".join(item.nodes)[:60])
    return f"{code(item.name)} on {where}: {_which(item)}, since {local_time(item.since)}"


def _flag(alert: Alert) -> str:
    emoji = ":warning:" if alert.kind is Kind.FULL else ":zzz:"
    return f"{emoji} {mention(alert.calls)}" if alert.calls else emoji


def _subject(alert: Alert) -> str:
    return {Kind.FULL: "memory limits", Kind.SPARE: "memory"}.get(
        alert.kind, "GPUs" if alert.about_gpus else "CPUs"
    )


def _which(item: AlertItem) -> str:
    if item.what:
        return item.what
    if item.idle and item.idle < item.gpus:
        return f"{item.idle} of {counted(item.gpus, 'GPU')}"
    return counted(item.gpus, "GPU")


def _condition(kind: Kind, items: Sequence[AlertItem]) -> str:
    mean = sum(item.mean or 0.0 for item in items) / len(items)
    return CONDITIONS[kind].format(lasted=duration(max(item.lasted for item in items)), mean=percent(mean, 1))


def _how_it_ended(alert: Alert, item: AlertItem, active: Mapping[str, Snooze]) -> str:
    """Refer to a newer warning only if there is one: none is posted during a snooze."""
    before = f"after {duration(item.lasted)} {_before(alert.kind, item)}"
    busy = _RECOVERED.get(alert.kind, "busy")
    if item.now is Kind.ENDED:
        return f"ended{f', {busy} again' if item.recovered else ''} {before}"
    if item.now.needs_alert:
        newer = "" if item.key in active or alert.asked_by else "; see the newer warning"
        return f"is now {NEW_STATES[item.now]} {before}{newer}"
    return f"is {busy} {'now' if alert.kind is Kind.UNUSED else 'again'} {before}"


def _before(kind: Kind, item: AlertItem) -> str:
    if kind is Kind.FULL:
        return "near its memory limit"
    if kind is Kind.SPARE:
        return f"with {_which(item)} hardly used"
    if kind is Kind.LOW:
        return f"at {percent(item.mean or 0, 1)} average"
    if kind is Kind.STUCK:
        return "without log output"
    if kind is Kind.WAITING:
        return "of waiting"
    return f"with {_which(item)} {'unused' if kind is Kind.UNUSED else 'idle'}"


def _pod(alert: Alert, item: AlertItem) -> str:
    """Name the team and never the owner: warnings about pods are public."""
    team = f" (team {plain(alert.team)})" if alert.team else ""
    return f"Pod {code(f'{alert.namespace}/{item.name}')}{team}"


def duration(time: timedelta) -> str:
    """Format a time: `40 s`, `2 h`, `11 h 30 min`; other than whole hours in minutes up to `600 min`."""
    seconds = round(time.total_seconds())
    if seconds < 120 and seconds != 60:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    return time_text(minutes) if minutes % 60 == 0 or minutes > 600 else f"{minutes} min"


def _buttons(alert: Alert, all_snoozed: bool) -> dict[str, Any]:
    """A snooze can only be extended, so a snoozed warning offers only the longer one."""
    short, long = button(SNOOZE_4, "Snooze 4 h", alert.id), button(SNOOZE_24, "Snooze 24 h", alert.id)
    if alert.asked_by:
        long = button(NEEDED, "It's needed", alert.id)
    first = [_cancel(alert)] if alert.sweep else []
    if not (alert.sweep or alert.asked_by or all_snoozed) and (alert.owner or len(alert.open) > 1):
        first = [ask_button(item.key for item in alert.open)]
    snoozes = [long] if all_snoozed else [short, long]
    return actions(*first, *snoozes, button(UTILIZATION, "Show utilization", alert.id))


def _cancel(alert: Alert) -> dict[str, Any]:
    """One trial is cancelled by its sweep; several go to the monitor, which spares those busy again."""
    trials = [item.name.removeprefix(f"{alert.sweep}-") for item in alert.open]
    action, about = (CANCEL_IDLE, alert.sweep) if len(trials) == 1 else (CANCEL_IDLE_GROUP, alert.id)
    value = " ".join([about, *trials])
    while len(value) > MAX_BUTTON_VALUE:
        value = value.rpartition(" ")[0]
    what = "trial" if len(trials) == 1 else f"{value.count(' ')} trials"
    freed = "GPUs" if alert.about_gpus else "CPUs and memory"
    stops = f"Stops {what} {trials[0][:100]} of {alert.sweep} and frees its {freed}."
    if len(trials) > 1:
        stops = f"Stops {what} of {alert.sweep}, except any that are busy again, and frees their {freed}."
    confirm = {
        "title": plain_text(f"Cancel {what}?"),
        "text": plain_text(f"{stops} The sweep continues."),
        "confirm": plain_text(f"Cancel {what}"),
        "deny": plain_text("Keep running"),
        "style": "danger",
    }
    return button(action, f"Cancel {what}", value, style="danger", confirm=confirm)


def not_cancelled(
    alert: Alert, items: Iterable[AlertItem], snoozes: Mapping[str, Snooze], now: datetime
) -> str:
    active = _active(alert, snoozes, now)
    lines = [f"• {_state(alert, item, active)}" for item in items]
    return "\n".join(["Not cancelled:", *fitting(lines, MAX_LIST_SIZE)])


def owner_answered(alert: Alert, snooze: Snooze, hours: int) -> str:
    pod, owner = code(alert.items[0].key), mention(snooze.by)
    said = f"{owner} needs {pod}, and" if hours == NEEDED_HOURS else owner
    return f"{said} snoozed its warnings until {local_time(snooze.until)}."


def utilization(allocations: Iterable[GpuAllocation], window: timedelta, source: str) -> str:
    """Return a table of the GPUs; `source` is the name of the system that measured."""
    lines = [line for each in allocations for line in _utilization(each)]
    head = f"GPU utilization over the last {duration(window)} ({source}):"
    rest = [f"… and {len(lines) - MAX_GPUS} more"] if len(lines) > MAX_GPUS else []
    return "\n".join([head, *(lines[:MAX_GPUS] or ["• The GPUs are no longer allocated"]), *rest])


def _utilization(allocation: GpuAllocation) -> list[str]:
    lines = []
    for gpu in allocation.gpus:
        what = "too few samples"
        if gpu.peak is not None and gpu.mean is not None and gpu.p95 is not None:
            what = f"max {_tenths(gpu.peak)}, mean {_tenths(gpu.mean)}, p95 {_tenths(gpu.p95)}"
            what = ", ".join(filter(None, [what, load_text(gpu.load, 1)]))
        model = f" {plain(gpu.model)}" if gpu.model else ""
        lines.append(f"• {code(allocation.name)} {code(gpu.device[:16])}{model}: {what}")
    missing = allocation.allocated - len(allocation.gpus)
    return lines + (
        [f"• {code(allocation.name)}: no data for {counted(missing, 'GPU')}"] if missing > 0 else []
    )


def _tenths(share: float) -> str:
    return f"{100 * share:.1f}%"
