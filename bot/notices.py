"""What was told of idle GPUs and what is to be told now: one notice for each trial and kind. Pure.

    told -> told anew (twice, four times as long) -> at work again -> told anew
       `-> kept by somebody until a time -> told anew           `-----> over

More than three of a sweep at once are one notice, which those that come later join.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby

from bot.idle import LOW_WINDOW, Holding, Kind, first_after, times
from bot.models import Watch

MANY = 3  # notices of a sweep; more at once are one


@dataclass(frozen=True, kw_only=True)
class Found:
    """One holding, as it was just now."""

    held: Holding
    kind: Kind
    watch: Watch
    channel: str  # where it is told; empty: nowhere
    thread: str = ""


@dataclass(frozen=True, kw_only=True)
class Keep:
    """Somebody's word that idle GPUs are to be kept."""

    until: datetime
    by: str  # Slack user id
    name: str = ""  # what they are called


@dataclass(frozen=True, kw_only=True)
class Case:
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
class Notice:
    """One message."""

    kind: Kind
    sweep: str = ""
    namespace: str
    team: str = ""
    owner: str = ""
    channel: str
    thread: str = ""
    cases: tuple[Case, ...] = field(default=())
    ts: str = ""  # of the message
    rang: int = 0  # how loud it was posted; what gets louder is posted anew, for an edit calls nobody
    old: str = ""  # the message that it replaces, until that is deleted
    shown: str = ""  # fingerprint of the message as Slack has it

    @property
    def id(self) -> str:
        return f"{self.kind}/{self.cases[0].key}"

    @property
    def open(self) -> tuple[Case, ...]:
        return tuple(case for case in self.cases if case.now is self.kind)

    def loud(self, keeps: Mapping[str, Keep], now: datetime) -> int:
        """0 while nothing is idle that somebody does not keep."""
        return max((c.again for c in self.open if not kept(c.key, keeps, now)), default=0)

    @property
    def over(self) -> bool:
        return all(case.now is Kind.OVER for case in self.cases)


def follow(
    told: Iterable[Notice], found: Mapping[str, Found], keeps: Mapping[str, Keep], now: datetime
) -> tuple[Notice, ...]:
    """The notices as they should be shown now, in the order in which they came up."""
    before = tuple(told)
    unused = {case.key for notice in before if notice.kind is Kind.UNUSED for case in notice.open}
    found = {key: _still(each) if key in unused else each for key, each in found.items()}
    found = {key: _not_yet_low(each, before, now) for key, each in found.items()}
    notices = [
        replace(n, cases=tuple(_later(c, found.get(c.key), n.kind, now) for c in n.cases)) for n in before
    ]
    known = {(notice.kind, case.key) for notice in notices for case in notice.cases}
    news = [
        each
        for key, each in found.items()
        if each.kind.wrong and each.channel and (each.kind, key) not in known and not kept(key, keeps, now)
    ]
    for _, group in groupby(sorted(news, key=_together), key=_together):
        notices = _told(notices, list(group), now)
    return tuple(notices)


def kept(key: str, keeps: Mapping[str, Keep], now: datetime) -> Keep | None:
    keep = keeps.get(key)
    return keep if keep and keep.until > now else None


def _still(found: Found) -> Found:
    """What was never used and is idle, is no other news when too little is known of its life by now."""
    same = found.kind is Kind.IDLE and found.held.busy_ever is None
    return replace(found, kind=Kind.UNUSED) if same else found


def _not_yet_low(found: Found, told: Iterable[Notice], now: datetime) -> Found:
    """Two hours with an idle spell in them have a low mean, whatever the GPU does since."""
    if found.kind is not Kind.LOW:
        return found
    idle = [
        now if case.now is notice.kind else case.ended
        for notice in told
        if notice.kind in {Kind.UNUSED, Kind.IDLE, Kind.PARTIAL}
        for case in notice.cases
        if case.key == found.held.key
    ]
    recent = any(ended and now - ended < LOW_WINDOW for ended in idle)
    return replace(found, kind=Kind.MAYBE_LOW) if recent else found


def _later(case: Case, found: Found | None, kind: Kind, now: datetime) -> Case:
    if found is None:
        return _ended(case, Kind.OVER, kind, now)
    if found.kind is Kind.UNKNOWN or (found.kind is Kind.MAYBE_LOW and kind is Kind.LOW):
        return case
    if found.kind is not kind:
        return _ended(case, found.kind if found.kind.wrong else Kind.FINE, kind, now)
    # That it was over for a while means that its time starts anew.
    return _case(found, now, case.since if case.now is kind else None)


def _ended(case: Case, state: Kind, kind: Kind, now: datetime) -> Case:
    """How long it went on is told once and stays."""
    lasted = now - case.since if case.now is kind else case.lasted
    worked = state is Kind.OVER and (case.worked or case.now is Kind.FINE)
    ended = now if case.now is kind else case.ended
    return replace(case, now=state, lasted=lasted, worked=worked, ended=ended)


def _case(found: Found, now: datetime, since: datetime | None = None) -> Case:
    held, first = found.held, first_after(found.kind, found.watch)
    began = held.started or now
    since = since or (began if found.kind is Kind.UNUSED else max(began, now - first))
    again = 1 if found.kind is Kind.LOW else times(now - since, first)
    return Case(
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


def _told(notices: list[Notice], news: list[Found], now: datetime) -> list[Notice]:
    """One each, or one for all of them; or in the one for many that is there already."""
    notice, cases = _notice(news[0]), tuple(_case(each, now) for each in news)
    for at, one in enumerate(notices):
        alike = (one.kind, one.channel, one.thread, one.sweep) == (
            notice.kind,
            notice.channel,
            notice.thread,
            notice.sweep,
        )
        if alike and len(one.cases) > 1 and one.open:
            return [*notices[:at], replace(one, cases=(*one.cases, *cases)), *notices[at + 1 :]]
    if len(news) > MANY:
        return [*notices, replace(notice, cases=cases)]
    each_alone = [replace(_notice(f), cases=(case,)) for f, case in zip(news, cases, strict=True)]
    return [*notices, *each_alone]


def _notice(found: Found) -> Notice:
    held = found.held
    return Notice(
        kind=found.kind,
        sweep=held.sweep,
        namespace=held.namespace,
        team=held.team,
        owner=held.owner,
        channel=found.channel,
        thread=found.thread,
    )
