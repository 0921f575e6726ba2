"""The words of warnings about GPUs: what was seen, by which measure, what people may do about it. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from bot.core.numbers import percent
from bot.core.wording import counted, fitting
from bot.gpus.models import BUSY
from bot.idle.alerts import Alert, AlertItem, Snooze, kept
from bot.idle.detector import AGAIN, GpuAllocation, Kind
from bot.slack.blocks import context, section
from bot.slack.message import Message
from bot.slack.mrkdwn import code, mention, plain, quoted

CANCEL, CANCEL_MANY = "warning_cancel", "warning_cancel_many"
KEEP_4, KEEP_24, MEASURES = "warning_keep_4", "warning_keep_24", "warning_measures"
LIST = 2400  # characters of all trials of one message; a section takes 3000
VALUE = 2000  # characters of a button's value
SHOWN = 16  # GPUs of a private answer

SENTENCES = {
    Kind.UNUSED: "never did anything in the {lasted} after the start",
    Kind.IDLE: "did nothing for {lasted}",
    Kind.PARTIAL: "did nothing for {lasted} while the others work",
    Kind.LOW: "did little for {lasted}: {mean} on average",
    Kind.STUCK: "worked without a pause for {lasted}, and nothing was written to the log",
}
FIXES = {
    Kind.UNUSED: "Does the program see a GPU, and put its model there? Or does it still load its data?",
    Kind.IDLE: "Is it stuck, does it wait for data, or does it compute on the CPU?",
    Kind.PARTIAL: "If it can't use them all, ask for fewer: `gpus=`.",
    Kind.LOW: "Larger batches, or more workers that load data, may help.",
    Kind.STUCK: "Processes that wait for one another look like this. If it only writes elsewhere, keep it.",
}
CRITERIA = {
    Kind.LOW: "Measured: the share of time in which a GPU's engine works.",
    Kind.STUCK: "Measured: above 95 % of the GPU's engine time, and when the container last wrote a line.",
    Kind.IDLE: (
        f"Measured: no sample above {percent(BUSY, 1)} of a GPU's engine time; memory in use does not count."
    ),
}
NOTHING_ENDS = "Nothing is ended unless one of you says so."


def warning(alert: Alert, snoozed: Mapping[str, Snooze], now: datetime) -> Message:
    lines = _one(alert) if len(alert.cases) == 1 else _many(alert)
    held = [k for case in alert.open if (k := kept(case.key, snoozed, now))]
    all_kept = len(held) == len(alert.open)
    lines += [*([] if all_kept else [_mend(alert)]), *_keep(alert, held)]
    shown = section("\n".join(lines))
    if not alert.open:
        return Message(text=lines[0], blocks=(shown,))
    how = CRITERIA.get(alert.kind, CRITERIA[Kind.IDLE])
    below = context(f"{how} {NOTHING_ENDS}")
    return Message(text=lines[0], blocks=(shown, below, _buttons(alert, all_kept)))


def _keep(alert: Alert, snoozed: Sequence[Snooze]) -> list[str]:
    """By name: it stands there, too, when the message is posted anew, and would call who has done enough."""
    if not snoozed:
        return []
    first = min(snoozed, key=lambda keep: keep.until)
    who = quoted(first.name, 60) if first.name else mention(first.by)
    what = "it" if sum(case.idle or case.gpus for case in alert.open) == 1 else "them"
    what = what if len(snoozed) == len(alert.open) else f"{len(snoozed)} of them"
    return [f":stopwatch: {who} keeps {what} until {_moment(first.until)}."]


def _one(alert: Alert) -> list[str]:
    case = alert.cases[0]
    who = f"trial {code(case.name)}" if alert.sweep else _pod(alert, case)
    if case.now is not alert.kind:
        return [f"{_sign(alert)} {who[0].upper()}{who[1:]} {_how_it_ended(alert, case)}."]
    sentence = _sentence(alert.kind, [case])
    return [f":zzz: {_which(case)} of {who} {sentence} (since {_moment(case.since)})."]


def _sign(alert: Alert) -> str:
    """Of what is over: that it has ended while it did nothing is no success."""
    if any(case.now.wrong for case in alert.cases):
        return ":zzz:"
    well = all(case.now is Kind.FINE or case.worked for case in alert.cases)
    return ":white_check_mark:" if well else ":black_square_for_stop:"


def _mend(alert: Alert) -> str:
    """At the last time it is told, plainer."""
    if any(case.again == AGAIN[-1] for case in alert.open) and alert.kind in {Kind.UNUSED, Kind.IDLE}:
        what = "it" if len(alert.open) == 1 else "them"
        why = "if there is a reason: others may wait for GPUs."
        return f":octagonal_sign: Better cancel {what}, or keep {what} {why}"
    return f":wrench: {FIXES[alert.kind]}"


def _many(alert: Alert) -> list[str]:
    thing = "trial" if alert.sweep else "pod"
    still, all_ = alert.open, counted(len(alert.cases), thing)
    changed = any(case.now.wrong for case in alert.cases)
    what = f"These {all_} changed" if changed else f"No GPU of these {all_} is idle any more"
    head = f"{_sign(alert)} {what}:"
    if still:
        head = f":zzz: GPUs of {len(still)} of {all_} {_sentence(alert.kind, still)}:"
    lines = [f"• {_state(alert, case)}" for case in sorted(alert.cases, key=lambda case: case not in still)]
    return [head, *fitting(lines, LIST)]


def _state(alert: Alert, case: AlertItem) -> str:
    if case.now is not alert.kind:
        return f"{code(case.name)} {_how_it_ended(alert, case)}"
    where = plain(", ".join(case.nodes)[:60])
    return f"{code(case.name)} on {where}: {_which(case)}, since {_moment(case.since)}"


def _which(case: AlertItem) -> str:
    if case.idle and case.idle < case.gpus:
        return f"{case.idle} of {counted(case.gpus, 'GPU')}"
    return counted(case.gpus, "GPU")


def _sentence(kind: Kind, cases: Sequence[AlertItem]) -> str:
    mean = sum(case.mean or 0.0 for case in cases) / len(cases)
    return SENTENCES[kind].format(lasted=duration(max(case.lasted for case in cases)), mean=percent(mean, 1))


def _how_it_ended(alert: Alert, case: AlertItem) -> str:
    before = f"after {duration(case.lasted)} with {_which(case)} idle"
    if alert.kind is Kind.LOW:
        before = f"after {duration(case.lasted)} at {percent(case.mean or 0, 1)}"
    if alert.kind is Kind.STUCK:
        before = f"after {duration(case.lasted)} without a line in its log"
    if case.now is Kind.OVER:
        return f"has ended, {'at work again ' if case.worked else ''}{before}"
    if case.now.wrong:
        return f"changed, {before}; a later message tells how it is now"
    return f"{'writes' if alert.kind is Kind.STUCK else 'is at work'} again, {before}"


def _pod(alert: Alert, case: AlertItem) -> str:
    """Nobody is called: it is not for a channel to hear who it is."""
    team = f" (team {plain(alert.team)})" if alert.team else ""
    return f"pod {code(f'{alert.namespace}/{case.name}')}{team}"


def duration(time: timedelta) -> str:
    """The largest unit that says it: 40 seconds, 30 minutes, 1 hour, 25 hours; 90 minutes stay minutes."""
    seconds = round(time.total_seconds())
    if seconds < 120 and seconds != 60:
        return counted(seconds, "second")
    minutes = round(seconds / 60)
    return (
        counted(minutes // 60, "hour") if minutes % 60 == 0 or minutes > 600 else counted(minutes, "minute")
    )


def _moment(when: datetime) -> str:
    """In each reader's own time."""
    return f"<!date^{round(when.timestamp())}^{{date_short_pretty}} {{time}}|{when:%Y-%m-%d %H:%M} UTC>"


# Buttons


def _buttons(alert: Alert, all_kept: bool) -> dict[str, Any]:
    """What is kept can be kept for longer."""
    times = ((KEEP_24, 24),) if all_kept else ((KEEP_4, 4), (KEEP_24, 24))
    snoozed = [_button(action, f"Keep {hours} h", alert.id) for action, hours in times]
    cancel = [_cancel(alert)] if alert.sweep else []
    return {
        "type": "actions",
        "elements": [*cancel, *snoozed, _button(MEASURES, "Show what was measured", alert.id)],
    }


def _button(action: str, text: str, value: str) -> dict[str, Any]:
    return {"type": "button", "action_id": action, "text": _plain_text(text), "value": value}


def _cancel(alert: Alert) -> dict[str, Any]:
    """One is ended by its sweep; of many, some may be at work again by then: the watch looks anew first."""
    trials = [case.name.removeprefix(f"{alert.sweep}-") for case in alert.open]
    action, about = (CANCEL, alert.sweep) if len(trials) == 1 else (CANCEL_MANY, alert.id)
    value = " ".join([about, *trials])
    while len(value) > VALUE:
        value = value.rpartition(" ")[0]
    what = "trial" if len(trials) == 1 else f"{value.count(' ')} trials"
    named, unless = (trials[0], "") if len(trials) == 1 else (what, ", unless at work again")
    return _button(action, f"Cancel {what}", value) | {
        "style": "danger",
        "confirm": {
            "title": _plain_text(f"Cancel {what}?"),
            "text": _plain_text(
                f"{named[:100]} of {alert.sweep}: ended now{unless}, and the GPUs freed. The sweep goes on."
            ),
            "confirm": _plain_text(f"Cancel {what}"),
            "deny": _plain_text("Let it run" if len(trials) == 1 else "Let them run"),
            "style": "danger",
        },
    }


def _plain_text(text: str) -> dict[str, str]:
    return {"type": "plain_text", "text": text}


# The private answers


def left_alone(alert: Alert, cases: Iterable[AlertItem]) -> str:
    lines = [f"• {_state(alert, case)}" for case in cases]
    return "\n".join(["Not cancelled:", *fitting(lines, LIST)])


def measures(held: Iterable[GpuAllocation], over: timedelta, source: str) -> str:
    lines = [line for each in held for line in _of(each)]
    head = f"What {source} measured over {duration(over)}:"
    rest = [f"… and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return "\n".join([head, *(lines[:SHOWN] or ["• nothing: the GPUs are not held any more"]), *rest])


def _of(held: GpuAllocation) -> list[str]:
    lines = []
    for gpu in held.gpus:
        what = "unknown: too few samples"
        if gpu.peak is not None and gpu.mean is not None and gpu.p95 is not None:
            what = f"at most {_tenths(gpu.peak)}, {_tenths(gpu.mean)} on average, "
            what += f"{_tenths(gpu.p95)} or less in 95 of 100 samples"
        model = f" {plain(gpu.model)}" if gpu.model else ""
        lines.append(f"• {code(held.name)} {code(gpu.device[:16])}{model}: {what}")
    missing = held.allocated - len(held.gpus)
    return lines + (
        [f"• {code(held.name)}: {counted(missing, 'GPU')} not seen: unknown"] if missing > 0 else []
    )


def _tenths(share: float) -> str:
    return f"{100 * share:.1f} %"
