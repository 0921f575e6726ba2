"""The home tab: what I search, what my team does, what waits, which GPUs are free. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bot.config.policy import Config
from bot.config.teams import team_of
from bot.core.record import Phase, SweepRecord
from bot.core.sweep_summary import Entry
from bot.slack.blocks import Block, View, actions, button, context, header, section
from bot.slack.mrkdwn import link, plain
from bot.sweeps.parent_message import cancel_button, summary

NEW, REFRESH, OPEN = "home_new", "home_refresh", "home_open"  # action ids
MINE, OTHERS = 10, 8  # sweeps shown
ENDED = 4  # of mine
SEARCHING = {Phase.PENDING, Phase.RUNNING, Phase.STOPPING}


@dataclass(frozen=True, kw_only=True)
class HomeFacts:
    """What is known at the moment. `site`: the address of this Slack, "" when it is not known."""

    sweeps: Sequence[Entry] = field(default=())
    records: Mapping[str, SweepRecord] = field(default_factory=dict)  # of those that are `shown`
    gpus: str = "_Not measured yet._"  # how many are free, in mrkdwn
    digest: str = ""  # the last one's headline
    digest_link: str = ""
    site: str = ""
    cancelled: str = ""  # a sweep whose Cancel was just pressed, and whose turn has not come


def shown(user: str, sweeps: Sequence[Entry], config: Config) -> list[str]:
    """Ids of the sweeps that `home` shows with all that is known of them."""
    chosen = (*_mine(user, sweeps)[:MINE], *_mates(user, sweeps, config)[:OTHERS])
    return [one.id for one in chosen]


def home(user: str, seen: HomeFacts, config: Config) -> View:
    team = team_of(config.teams, "", user)
    mine, mates = _mine(user, seen.sweeps), _mates(user, seen.sweeps, config)
    blocks = [
        actions(button(NEW, "New sweep", style="primary"), button(REFRESH, "Look again")),
        *_sweeps("My sweeps", mine, seen, user, MINE, "None yet. New sweep opens the form."),
        *(_sweeps(f"Team {team}", mates, seen, user, OTHERS, "Nobody else searches.") if team else []),
        *_queue(seen.sweeps),
        header("GPUs"),
        section(seen.gpus),
        *_digest(seen),
        context("`/sweep help` and `/gpus help` say what else I know."),
    ]
    return {"type": "home", "blocks": blocks}


def _mine(user: str, sweeps: Sequence[Entry]) -> list[Entry]:
    """Those that go on, and the last that ended."""
    mine = [one for one in sweeps if one.user == user and one.phase is not Phase.REFUSED]
    ended = [one for one in mine if not one.live]
    return [one for one in mine if one.live] + ended[:ENDED]


def _mates(user: str, sweeps: Sequence[Entry], config: Config) -> list[Entry]:
    """Live ones of the same team."""
    team = team_of(config.teams, "", user)
    others = [one for one in sweeps if one.live and one.user != user]
    return [one for one in others if team and team_of(config.teams, "", one.user) == team]


def _sweeps(
    title: str, sweeps: Sequence[Entry], seen: HomeFacts, user: str, most: int, none: str
) -> list[Block]:
    blocks = [header(title)]
    for entry in sweeps[:most]:
        if sweep := seen.records.get(entry.id):
            blocks += _sweep(sweep, seen, own=entry.user == user)
    if len(sweeps) > most:
        blocks.append(context(f"and {len(sweeps) - most} more: `/sweep list` has them all."))
    return blocks if sweeps else [*blocks, section(f"_{none}_")]


def _sweep(sweep: SweepRecord, seen: HomeFacts, *, own: bool) -> list[Block]:
    """The buttons in a row of their own: a section has room for one."""
    buttons, ends = [], sweep.phase.final or sweep.phase is Phase.STOPPING
    asked = "\n_You have cancelled it._" if sweep.id == seen.cancelled and not ends else ""
    if seen.site and sweep.thread:
        address = (
            f"{seen.site.rstrip('/')}/archives/{sweep.requester.channel}/p{sweep.thread.replace('.', '')}"
        )
        buttons.append(button(OPEN, "Thread", sweep.id, url=address))
    if own and not ends and not asked:
        buttons.append(cancel_button(sweep.id))
    return [section(f"{summary(sweep)}{asked}"), *([actions(*buttons)] if buttons else [])]


def _queue(sweeps: Sequence[Entry]) -> list[Block]:
    """What has not begun to search, whoever asked for it, and what has no running trial."""
    waiting = [one for one in sweeps if one.live and _waits(one)]
    lines = [f"• *{one.id}*: {_for_what(one)}, of {plain(one.user_name or 'somebody')}" for one in waiting]
    more = [f"and {len(lines) - OTHERS} more"] if len(lines) > OTHERS else []
    return [header("Queued"), section("\n".join(lines[:OTHERS] + more) or "_Nothing waits._")]


def _waits(sweep: Entry) -> bool:
    return sweep.phase not in SEARCHING or (not sweep.running and sweep.phase is not Phase.STOPPING)


def _for_what(sweep: Entry) -> str:
    return "waiting for a trial to start" if sweep.phase in SEARCHING else "has its image built"


def _digest(seen: HomeFacts) -> list[Block]:
    if not seen.digest:
        return []
    headline = link(seen.digest_link, seen.digest) if seen.digest_link else plain(seen.digest)
    return [header("The last digest"), section(headline)]
