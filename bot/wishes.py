"""The words after /sweep, or after the bot's name in a thread, that are about sweeps there are. Pure.

A word and perhaps a sweep: `cancel`, `cancel otter`, `cancel lr-brave-otter k3x9z`. Which sweep is meant,
when only a part of its name was said or none, is chosen among those that Redis remembers.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from bot.config import Config
from bot.hints import did_you_mean
from bot.identity import SWEEP_ID
from bot.models import Act, Phase, SweepRecord, UserError
from bot.mrkdwn import clipped, code
from bot.request import unescape
from bot.teams import team_of

WORDS = {
    "status": Act.STATUS,
    "cancel": Act.CANCEL,
    "drain": Act.DRAIN,
    "extend": Act.EXTEND,
    "logs": Act.LOGS,
    "results": Act.RESULTS,
    "rerun": Act.RERUN,
}
USES = {
    "list": "`/sweep list`, or `list mine`, `list running`, `list team`",
    "status": "`/sweep status`",
    "cancel": "`/sweep cancel`, or `/sweep cancel SWEEP TRIAL` to end one trial",
    "drain": "`/sweep drain`",
    "extend": "`/sweep extend trials=20`, 20 being the number of trials in all",
    "logs": "`/sweep logs`, or `/sweep logs SWEEP TRIAL`",
    "results": "`/sweep results`",
    "rerun": "`/sweep rerun trials=20`, with whatever shall differ",
}
NAMED = "SWEEP is its name or the name's beginning or end; leave it out when only one of yours fits"
ENDABLE = {Act.CANCEL, Act.KILL, Act.DRAIN}
CHOICES = 8
SHOWN = 60  # characters of what was typed
NEAR = 0.7  # of 1: `cancle` is cancel, but `main` is not drain


@dataclass(frozen=True, kw_only=True)
class Wish:
    act: Act
    sweep: str = ""  # as typed; empty: not said
    trial: str = ""
    trials: int = 0
    changes: str = ""


def word_of(text: str) -> tuple[str, str]:
    """The word and what is behind it. Phones begin with a capital, pastes have other blanks."""
    parts = text.split(maxsplit=1)
    return (parts[0].lower() if parts else "", parts[1].strip() if parts[1:] else "")


def slip(text: str, *others: str) -> str:
    """A sentence about a first word that is nearly one of mine; "" for any other text."""
    word, rest = word_of(unescape(text))
    known = [*USES, *others]
    near = get_close_matches(word, known, cutoff=NEAR)
    if not near or word in known or "=" in word or rest.startswith("="):
        return ""
    return f"I do not understand {code(word)}.{did_you_mean(word, near)}"


def read_wish(text: str, here: str = "") -> Wish:
    """`here` is the sweep in whose thread it was said. Raises UserError with the form that was meant."""
    word, rest = word_of(text)
    act = WORDS[word]
    if act is Act.RERUN:
        return _rerun(rest, here)
    said = unescape(rest).replace("`", "").split()
    total = ""
    if act is Act.EXTEND and said:
        total = said.pop()
    sweep = here or (said.pop(0) if said else "")
    if here and said[:1] == [here]:
        said.pop(0)
    trial = said.pop(0) if said and act in {Act.CANCEL, Act.LOGS} else ""
    if said or (act is Act.EXTEND and not re.fullmatch(r"trials=[1-9]\d{0,5}", total)):
        raise UserError(f"Write {USES[word]}. {NAMED}.")
    if sweep and not SWEEP_ID.fullmatch(sweep):
        raise UserError(f"`{sweep}` is not the name of a sweep; those look like `lr-brave-otter`.")
    act = Act.KILL if act is Act.CANCEL and trial else act
    return Wish(act=act, sweep=sweep, trial=trial, trials=int(total.partition("=")[2] or 0))


def _rerun(rest: str, here: str) -> Wish:
    first, *others = rest.split(maxsplit=1)[:2] or [""]
    named = first.replace("`", "") if "=" not in first else ""
    return Wish(act=Act.RERUN, sweep=here or named, changes="".join(others) if named else rest)


def choose(wish: Wish, user: str, sweeps: Sequence[SweepRecord]) -> str:
    """The id of the sweep that is meant. Raises UserError with those it may be."""
    if not wish.sweep:
        return _only_one(wish.act, [s for s in sweeps if s.asker.user == user])
    if any(sweep.id == wish.sweep for sweep in sweeps):
        return wish.sweep
    ids = [sweep.id for sweep in sweeps if sweep.phase is not Phase.REFUSED]
    found = [i for i in ids if i.startswith(wish.sweep) or i.endswith(wish.sweep)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(f"`{wish.sweep}` may be {_listed(found)}.")
    # The cluster remembers longer than Redis.
    if wish.sweep.count("-") >= 2 and SWEEP_ID.fullmatch(wish.sweep):
        return wish.sweep
    raise UserError(f"I know no sweep `{wish.sweep}`.{did_you_mean(wish.sweep, ids)}")


def _only_one(act: Act, mine: list[SweepRecord]) -> str:
    live = [sweep.id for sweep in mine if not sweep.phase.final]
    ended = [sweep.id for sweep in mine if sweep.phase.final and sweep.phase is not Phase.REFUSED]
    fits = live if act in ENDABLE else ended if act is Act.EXTEND else live or ended
    if len(fits) == 1:
        return fits[0]
    if not fits:
        kind = "that runs" if act in ENDABLE else "that has ended" if act is Act.EXTEND else ""
        raise UserError(f"You have no sweep {kind}".rstrip() + "; name one, `/sweep list` shows them.")
    raise UserError(f"Which one? You have {_listed(fits)}.")


def _listed(ids: list[str]) -> str:
    names = ", ".join(f"`{i}`" for i in ids[:CHOICES])
    return names + (f" and {len(ids) - CHOICES} more" if len(ids) > CHOICES else "")


def selected(which: str, user: str, sweeps: Iterable[SweepRecord], config: Config) -> list[SweepRecord]:
    """For `list`: "" is mine, and everybody's that run."""
    team = team_of(config.teams, "", user)
    there = [s for s in sweeps if s.phase is not Phase.REFUSED]
    match which:
        case "" | "mine":
            return [s for s in there if s.asker.user == user or (not which and not s.phase.final)]
        case "running":
            return [s for s in there if not s.phase.final]
        case "team" if team:
            return [s for s in there if team_of(config.teams, "", s.asker.user) == team]
        case "team":
            raise UserError("You aren't in a team. Ask an admin to add you under `teams:`.")
    raise UserError(f"Unknown list “{clipped(unescape(which), SHOWN)}”. Usage: {USES['list']}.")
