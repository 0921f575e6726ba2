"""Build the home tab: my sweeps, my team's, the queue, free GPUs, and the latest digest. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bot.config.policy import Config
from bot.config.teams import team_of
from bot.core.record import Phase, SweepRecord
from bot.core.sweep_summary import SweepSummary
from bot.messages.parent import cancel_button, summary
from bot.slack.blocks import Block, View, actions, button, context, header, section
from bot.slack.mrkdwn import link, plain

NEW_SWEEP, REFRESH, OPEN_THREAD = "home_new", "home_refresh", "home_open"  # action ids
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
    digest: str = ""  # the latest one's headline
    digest_link: str = ""
    site: str = ""  # URL of the Slack workspace; empty: unknown
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
        *_sweeps("My sweeps", mine, seen, user, MAX_MINE, "No sweeps yet. Select *New sweep* to start one."),
        *(_sweeps(f"Team {team}", others, seen, user, MAX_OTHERS, "No other active sweeps.") if team else []),
        *_queue(seen.sweeps),
        header("GPUs"),
        section(seen.gpus),
        *_digest(seen),
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
    """Put the buttons into their own row: a section takes only one."""
    buttons, stopping = [], sweep.phase.final or sweep.phase is Phase.STOPPING
    cancelling = "\n_Cancelling…_" if sweep.id == seen.cancelled and not stopping else ""
    if seen.site and sweep.thread:
        url = f"{seen.site.rstrip('/')}/archives/{sweep.requester.channel}/p{sweep.thread.replace('.', '')}"
        buttons.append(button(OPEN_THREAD, "Thread", sweep.id, url=url))
    if own and not stopping and not cancelling:
        buttons.append(cancel_button(sweep.id))
    return [section(f"{summary(sweep)}{cancelling}"), *([actions(*buttons)] if buttons else [])]


def _queue(sweeps: Sequence[SweepSummary]) -> list[Block]:
    """List everybody's active sweeps without a running trial."""
    waiting = [one for one in sweeps if one.live and _waits(one)]
    lines = [f"• *{one.id}* · {plain(one.user_name or 'unknown user')} · {_stage(one)}" for one in waiting]
    more = [f"… and {len(lines) - MAX_OTHERS} more"] if len(lines) > MAX_OTHERS else []
    return [header("Queued"), section("\n".join(lines[:MAX_OTHERS] + more) or "_Queue is empty._")]


def _waits(sweep: SweepSummary) -> bool:
    return not sweep.running and sweep.phase not in NOT_QUEUED


def _stage(sweep: SweepSummary) -> str:
    return "waiting to start" if sweep.phase in STARTED else "building image"


def _digest(seen: HomeFacts) -> list[Block]:
    if not seen.digest:
        return []
    headline = link(seen.digest_link, seen.digest) if seen.digest_link else plain(seen.digest)
    return [header("Latest digest"), section(headline)]
