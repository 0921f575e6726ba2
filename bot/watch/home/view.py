"""Build the home tab: its buttons, my sweeps with Cancel, my team's, the queue, free GPUs, and the latest
digest.

The handler loads its data when the tab is opened, and a worker after a measurement.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bot.core.record import Phase, SweepRecord
from bot.core.sweep_summary import SweepSummary
from bot.measure.gpus.command import answer
from bot.measure.gpus.models import Snapshot
from bot.platform.config.policy import Config
from bot.platform.config.teams import team_of
from bot.platform.slack.blocks import Block, View, actions, button, context, header, section
from bot.platform.slack.mrkdwn import plain
from bot.platform.storage.sweeps import Store
from bot.sweep.decisions.parent_message import summary
from bot.sweep.form.drafts import Drafts
from bot.sweep.model.texts import cancel_button, name_link
from bot.watch.digests.latest import LatestDigest

NEW_SWEEP, REFRESH = "home_new", "home_refresh"  # action ids
MAX_MINE, MAX_OTHERS = 10, 8  # sweeps shown
MAX_FINISHED = 4  # of mine
STARTED = {Phase.PENDING, Phase.RUNNING, Phase.STOPPING}
NOT_QUEUED = {Phase.STOPPING, Phase.HELD, Phase.PAUSED}


@dataclass(frozen=True, kw_only=True)
class HomeFacts:
    """The data that the home tab shows."""

    sweeps: Sequence[SweepSummary] = field(default=())
    records: Mapping[str, SweepRecord] = field(default_factory=dict)  # by id, of the sweeps in `shown`
    gpus: str = "_No GPU data yet._"  # free GPUs, in mrkdwn
    digest: LatestDigest | None = None
    cancelled: str = ""  # id of a sweep with a Cancel click that is still queued


def shown(user: str, sweeps: Sequence[SweepSummary], config: Config) -> list[str]:
    """Return the ids of the sweeps whose whole records `home` needs."""
    chosen = (*_mine(user, sweeps)[:MAX_MINE], *_team_sweeps(user, sweeps, config)[:MAX_OTHERS])
    return [one.id for one in chosen]


def home(user: str, seen: HomeFacts, config: Config) -> View:
    team = team_of(config.teams, "", user)
    mine, others = _mine(user, seen.sweeps), _team_sweeps(user, seen.sweeps, config)
    blocks = [
        actions(button(NEW_SWEEP, "New sweep", style="primary"), button(REFRESH, "Refresh")),
        *_sweeps("My sweeps", mine, seen, user, MAX_MINE, "No sweeps yet. Click *New sweep* to start one."),
        *(_sweeps(f"Team {team}", others, seen, user, MAX_OTHERS, "No other active sweeps.") if team else []),
        *_queue(seen.sweeps),
        header("GPUs"),
        section(seen.gpus),
        *_digest(seen.digest),
        context("More commands: `/sweep help`, `/gpus help`"),
    ]
    return {"type": "home", "blocks": blocks}


def _mine(user: str, sweeps: Sequence[SweepSummary]) -> list[SweepSummary]:
    """Return the user's active sweeps, then the latest finished ones."""
    mine = [one for one in sweeps if one.user == user and one.phase is not Phase.REFUSED]
    finished = [one for one in mine if not one.live]
    return [one for one in mine if one.live] + finished[:MAX_FINISHED]


def _team_sweeps(user: str, sweeps: Sequence[SweepSummary], config: Config) -> list[SweepSummary]:
    """Return active sweeps of the user's teammates."""
    team = team_of(config.teams, "", user)
    others = [one for one in sweeps if one.live and one.user != user]
    return [one for one in others if team and team_of(config.teams, "", one.user) == team]


def _sweeps(
    title: str, sweeps: Sequence[SweepSummary], seen: HomeFacts, user: str, most: int, none: str
) -> list[Block]:
    blocks = [header(title)]
    for entry in sweeps[:most]:
        if sweep := seen.records.get(entry.id):
            blocks += _sweep(sweep, seen, own=entry.user == user)
    if len(sweeps) > most:
        blocks.append(context(f"{len(sweeps) - most} more in `/sweep list`"))
    return blocks if sweeps else [*blocks, section(f"_{none}_")]


def _sweep(sweep: SweepRecord, seen: HomeFacts, *, own: bool) -> list[Block]:
    stopping = sweep.phase.final or sweep.phase is Phase.STOPPING
    cancelling = "\n_Cancelling…_" if sweep.id == seen.cancelled and not stopping else ""
    can_cancel = own and not stopping and not cancelling
    buttons = [actions(cancel_button(sweep.id))] if can_cancel else []
    return [section(f"{summary(sweep)}{cancelling}"), *buttons]


def _queue(sweeps: Sequence[SweepSummary]) -> list[Block]:
    """List everybody's active sweeps without a running trial."""
    waiting = [one for one in sweeps if one.live and _waits(one)]
    lines = [
        f"• {name_link(one)} · {plain(one.user_name or 'unknown user')} · {_stage(one)}" for one in waiting
    ]
    more = [f"… and {len(lines) - MAX_OTHERS} more"] if len(lines) > MAX_OTHERS else []
    return [header("Queued"), section("\n".join(lines[:MAX_OTHERS] + more) or "_Queue is empty._")]


def _waits(sweep: SweepSummary) -> bool:
    return not sweep.running and sweep.phase not in NOT_QUEUED


def _stage(sweep: SweepSummary) -> str:
    if sweep.phase in STARTED:
        return "trials waiting"
    return "building image" if sweep.phase is Phase.BUILDING else "not started"  # such as above a budget


def _digest(latest: LatestDigest | None) -> list[Block]:
    return [header("Latest digest"), section(latest.linked)] if latest else []


@dataclass(frozen=True, kw_only=True)
class HomeLoader:
    """`last_digest` returns a channel's latest digest. `view` raises RedisError."""

    store: Store
    drafts: Drafts
    last_digest: Callable[[str], Awaitable[LatestDigest | None]]
    config: Config

    async def view(self, user: str, gpus: Snapshot | None, note: str, cancelled: str = "") -> View:
        """`note` appears below the GPU data or in its place; `cancelled`: a sweep whose cancel is queued."""
        last = await self.drafts.last(user)
        channels = [last.channel] if last else []
        channels += [each.channel for each in self.config.digests]
        digests = [found for channel in dict.fromkeys(channels) if (found := await self.last_digest(channel))]
        free = answer("free", gpus, user) if gpus else ""
        sweeps = await self.store.listed()
        records = await self.store.records(shown(user, sweeps, self.config))
        seen = HomeFacts(
            sweeps=sweeps,
            records={record.id: record for record in records},
            gpus="\n".join(line for line in (free, note) if line),
            digest=digests[0] if digests else None,
            cancelled=cancelled,
        )
        return home(user, seen, self.config)
