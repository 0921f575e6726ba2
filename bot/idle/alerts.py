"""What was told of idle GPUs and what is to be told now: one notice for each trial and kind. Pure.

    told -> told anew (twice, four times as long) -> at work again -> told anew
       `-> kept by somebody until a time -> told anew           `-----> over

More than three of a sweep at once are one notice, which those that come later join.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby

from bot.core.thresholds import IdleThresholds
from bot.idle.detector import LOW_WINDOW, GpuAllocation, Kind, first_after, times

MANY = 3  # notices of a sweep; more at once are one


@dataclass(frozen=True, kw_only=True)
class Found:
    """One holding, as it was just now."""

    held: GpuAllocation
    kind: Kind
    watch: IdleThresholds
    channel: str  # where it is told; empty: nowhere
    thread: str = ""


@dataclass(frozen=True, kw_only=True)
class Snooze:
    """Somebody's word that idle GPUs are to be kept."""

    until: datetime
    by: str  # Slack user id
    name: str = ""  # what they are called


@dataclass(frozen=True, kw_only=True)
class AlertItem:
    """One trial, or one pod, of a notice."""

    key: str
    name: str
    nodes: tuple[str, ...]
    now: Kind
    since: datetime
    lasted: timedelta  # told at least; for those that are over: how long it went on
    again: int  # 1, and 2 and 4 when it is told again
    idle: int
    gpus: int
    mean: float | None = None
    worked: bool = False  # of what is over: it was at work again before
    ended: datetime | None = None  # when it was first seen to be no longer so


@dataclass(frozen=True, kw_only=True)
class Alert:
    """One message."""

    kind: Kind
    sweep: str = ""
    namespace: str
    team: str = ""
    owner: str = ""
    channel: str
    thread: str = ""
    cases: tuple[AlertItem, ...] = field(default=())
    ts: str = ""  # of the message
    rang: int = 0  # how loud it was posted; what gets louder is posted anew, for an edit calls nobody
    old: str = ""  # the message that it replaces, until that is deleted
    shown: str = ""  # fingerprint of the message as Slack has it

    @property
    def id(self) -> str:
        return f"{self.kind}/{self.cases[0].key}"

    @property
    def open(self) -> tuple[AlertItem, ...]:
        return tuple(case for case in self.cases if case.now is self.kind)

    def loud(self, snoozed: Mapping[str, Snooze], now: datetime) -> int:
        """0 while nothing is idle that somebody does not keep."""
        return max((c.again for c in self.open if not kept(c.key, snoozed, now)), default=0)

    @property
    def over(self) -> bool:
        return all(case.now is Kind.OVER for case in self.cases)


def follow(
    told: Iterable[Alert], found: Mapping[str, Found], snoozed: Mapping[str, Snooze], now: datetime
) -> tuple[Alert, ...]:
    """The notices as they should be shown now, in the order in which they came up."""
    before = tuple(told)
    unused = {case.key for alert in before if alert.kind is Kind.UNUSED for case in alert.open}
    found = {key: _still(each) if key in unused else each for key, each in found.items()}
    found = {key: _not_yet_low(each, before, now) for key, each in found.items()}
    alerts = [
        replace(n, cases=tuple(_later(c, found.get(c.key), n.kind, now) for c in n.cases)) for n in before
    ]
    known = {(alert.kind, case.key) for alert in alerts for case in alert.cases}
    news = [
        each
        for key, each in found.items()
        if each.kind.wrong and each.channel and (each.kind, key) not in known and not kept(key, snoozed, now)
    ]
    for _, group in groupby(sorted(news, key=_together), key=_together):
        alerts = _told(alerts, list(group), now)
    return tuple(alerts)


def kept(key: str, snoozed: Mapping[str, Snooze], now: datetime) -> Snooze | None:
    keep = snoozed.get(key)
    return keep if keep and keep.until > now else None


def _still(found: Found) -> Found:
    """What was never used and is idle, is no other news when too little is known of its life by now."""
    same = found.kind is Kind.IDLE and found.held.busy_ever is None
    return replace(found, kind=Kind.UNUSED) if same else found


def _not_yet_low(found: Found, told: Iterable[Alert], now: datetime) -> Found:
    """Two hours with an idle spell in them have a low mean, whatever the GPU does since."""
    if found.kind is not Kind.LOW:
        return found
    idle = [
        now if case.now is alert.kind else case.ended
        for alert in told
        if alert.kind in {Kind.UNUSED, Kind.IDLE, Kind.PARTIAL}
        for case in alert.cases
        if case.key == found.held.key
    ]
    recent = any(ended and now - ended < LOW_WINDOW for ended in idle)
    return replace(found, kind=Kind.MAYBE_LOW) if recent else found


def _later(case: AlertItem, found: Found | None, kind: Kind, now: datetime) -> AlertItem:
    if found is None:
        return _ended(case, Kind.OVER, kind, now)
    if found.kind is Kind.UNKNOWN or (found.kind is Kind.MAYBE_LOW and kind is Kind.LOW):
        return case
    if found.kind is not kind:
        return _ended(case, found.kind if found.kind.wrong else Kind.FINE, kind, now)
    # That it was over for a while means that its time starts anew.
    return _case(found, now, case.since if case.now is kind else None)


def _ended(case: AlertItem, state: Kind, kind: Kind, now: datetime) -> AlertItem:
    """How long it went on is told once and stays."""
    lasted = now - case.since if case.now is kind else case.lasted
    worked = state is Kind.OVER and (case.worked or case.now is Kind.FINE)
    ended = now if case.now is kind else case.ended
    return replace(case, now=state, lasted=lasted, worked=worked, ended=ended)


def _case(found: Found, now: datetime, since: datetime | None = None) -> AlertItem:
    held, first = found.held, first_after(found.kind, found.watch)
    began = held.started or now
    since = since or (began if found.kind is Kind.UNUSED else max(began, now - first))
    again = 1 if found.kind is Kind.LOW else times(now - since, first)
    return AlertItem(
        key=held.key,
        name=held.name,
        nodes=held.nodes,
        now=found.kind,
        since=since,
        lasted=first * again,
        again=again,
        idle=held.idle,
        gpus=max(held.allocated, len(held.gpus)),
        mean=held.mean if found.kind is Kind.LOW else None,
    )


def _together(found: Found) -> tuple[str, str, str, str]:
    return found.channel, found.thread, found.held.sweep or found.held.team, found.kind


def _told(alerts: list[Alert], news: list[Found], now: datetime) -> list[Alert]:
    """One each, or one for all of them; or in the one for many that is there already."""
    alert, cases = _notice(news[0]), tuple(_case(each, now) for each in news)
    for at, one in enumerate(alerts):
        alike = (one.kind, one.channel, one.thread, one.sweep) == (
            alert.kind,
            alert.channel,
            alert.thread,
            alert.sweep,
        )
        if alike and len(one.cases) > 1 and one.open:
            return [*alerts[:at], replace(one, cases=(*one.cases, *cases)), *alerts[at + 1 :]]
    if len(news) > MANY:
        return [*alerts, replace(alert, cases=cases)]
    each_alone = [replace(_notice(f), cases=(case,)) for f, case in zip(news, cases, strict=True)]
    return [*alerts, *each_alone]


def _notice(found: Found) -> Alert:
    held = found.held
    return Alert(
        kind=found.kind,
        sweep=held.sweep,
        namespace=held.namespace,
        team=held.team,
        owner=held.owner,
        channel=found.channel,
        thread=found.thread,
    )
