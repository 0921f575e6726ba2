"""The words after /sweep, or after the bot's name in a thread, that are about sweeps there are. Pure.

A word and perhaps a sweep: `cancel`, `cancel otter`, `cancel lr-brave-otter k3x9z`. Which sweep is meant,
when only a part of its name was said or none, is chosen among those that Redis remembers.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from bot.access import controls
from bot.config import Config
from bot.entries import Entry
from bot.hints import did_you_mean, shortened
from bot.identity import SWEEP_ID
from bot.models import Act, Phase, UserError
from bot.mrkdwn import code
from bot.request import STARTERS, unescape
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
    "status": "`/sweep status [SWEEP]`",
    "cancel": "`/sweep cancel [SWEEP]`, or `/sweep cancel [SWEEP] TRIAL` for one trial",
    "drain": "`/sweep drain [SWEEP]`",
    "extend": "`/sweep extend [SWEEP] trials=20` (the new total)",
    "logs": "`/sweep logs [SWEEP]`, or `/sweep logs [SWEEP] TRIAL`",
    "results": "`/sweep results [SWEEP]`",
    "rerun": "`/sweep rerun [SWEEP] trials=20` (any option to change)",
}
NAMED = "SWEEP is all of a name, or its start or end; omit it if only one of your sweeps qualifies"
ENDABLE = {Act.CANCEL, Act.KILL, Act.DRAIN}
CHOICES = 8
# The end of a trial's name: Katib takes eight letters and digits of k8s.io/apimachinery's rand.String; people
# may type the last of them.
TRIAL = re.compile(r"(?=.*[2-9])[a-z0-9]{3,8}|[bcdfghjklmnpqrstvwxz]{8}")
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")  # of a sweep or a trial
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
    if not near or word in {*known, *STARTERS} or "=" in word or rest.startswith("="):
        return ""
    return f"Unknown command {code(word)}.{did_you_mean(word, near)}"


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
    sweep = here or (said.pop(0).lower() if said else "")
    if here and said[:1] == [here]:
        said.pop(0)
    trial = said.pop(0).lower() if said and act in {Act.CANCEL, Act.LOGS} else ""
    if said or (act is Act.EXTEND and not re.fullmatch(r"trials=[1-9]\d{0,5}", total)):
        raise UserError(f"Usage: {USES[word]}. {NAMED}.")
    _checked(sweep)
    act = Act.KILL if act is Act.CANCEL and trial else act
    return Wish(act=act, sweep=sweep, trial=trial, trials=int(total.partition("=")[2] or 0))


def _checked(name: str) -> str:
    if name and not NAME.fullmatch(name):
        shown = shortened(name).replace("`", "")
        raise UserError(f"`{shown}` isn't a sweep name. Names look like `lr-brave-otter`.")
    return name


def _rerun(rest: str, here: str) -> Wish:
    first, *others = rest.split(maxsplit=1)[:2] or [""]
    named = _checked(first.replace("`", "").lower()) if "=" not in first else ""
    return Wish(act=Act.RERUN, sweep=here or named, changes="".join(others) if named else rest)


def choose(wish: Wish, user: str, sweeps: Sequence[Entry], config: Config) -> Wish:
    """The wish with the whole id of its sweep. Raises UserError with those that it may be."""
    if not wish.sweep:
        return replace(wish, sweep=_only_one(wish.act, [s for s in sweeps if s.user == user]))
    if any(sweep.id == wish.sweep for sweep in sweeps):
        return wish
    there = [sweep for sweep in sweeps if sweep.phase is not Phase.REFUSED]
    found = [s for s in there if s.id.startswith(wish.sweep) or s.id.endswith(wish.sweep)]
    fits = [sweep.id for sweep in _fitting(wish.act, user, found, config)]
    if len(fits) == 1:
        return replace(wish, sweep=fits[0])
    if fits:
        raise UserError(f"`{wish.sweep}` matches several sweeps: {_listed(fits)}.")
    if by_trial := _of_trial(wish, user, there):
        return by_trial
    if wish.sweep.count("-") >= 2 and SWEEP_ID.fullmatch(wish.sweep):  # the cluster remembers longer
        return wish
    known = [sweep.id for sweep in there if sweep.live or sweep.user == user]
    raise UserError(f"No sweep named `{wish.sweep}`.{did_you_mean(wish.sweep, known)}")


def _fitting(act: Act, user: str, found: Sequence[Entry], config: Config) -> Sequence[Entry]:
    """Of sweeps with that name those that are meant, so that others' ended ones wear no name out.

    What changes a sweep never prefers one of several that this person may change.
    """
    live, ended = [s for s in found if s.live], [s for s in found if not s.live]
    if act in ENDABLE or act is Act.EXTEND:
        fits = live if act in ENDABLE else ended
        return [s for s in fits if controls(user, s.user, config)] or fits or found
    mine = [s for s in found if s.user == user]
    return [s for s in mine if s.live] or mine or live or found


def _of_trial(wish: Wish, user: str, there: Sequence[Entry]) -> Wish | None:
    """When a trial was named in place of a sweep: all of its name, or the end, which Katib made up."""
    if wish.trial or wish.act not in {Act.CANCEL, Act.LOGS}:
        return None
    act = Act.KILL if wish.act is Act.CANCEL else wish.act
    whole = [sweep.id for sweep in there if wish.sweep.startswith(f"{sweep.id}-")]
    if whole:
        return replace(wish, act=act, sweep=max(whole, key=len), trial=wish.sweep)
    if not TRIAL.fullmatch(wish.sweep):
        return None
    live = [sweep.id for sweep in there if sweep.live and sweep.user == user]
    if len(live) == 1:
        return replace(wish, act=act, sweep=live[0], trial=wish.sweep)
    word = "cancel" if wish.act is Act.CANCEL else "logs"
    raise UserError(
        f"No sweep named `{wish.sweep}`. If it is a trial, name its sweep too: "
        f"`/sweep {word} SWEEP {wish.sweep}`."
    )


def _only_one(act: Act, mine: list[Entry]) -> str:
    live = [sweep.id for sweep in mine if sweep.live]
    ended = [sweep.id for sweep in mine if not sweep.live and sweep.phase is not Phase.REFUSED]
    fits = live if act in ENDABLE else ended if act is Act.EXTEND else live or ended
    if len(fits) == 1:
        return fits[0]
    if not fits:
        kind = "running " if act in ENDABLE else "finished " if act is Act.EXTEND else ""
        raise UserError(f"You have no {kind}sweep. Name one; see `/sweep list`.")
    raise UserError(f"Which one? You have {_listed(fits)}.")


def _listed(ids: list[str]) -> str:
    names = ", ".join(f"`{i}`" for i in ids[:CHOICES])
    return names + (f" and {len(ids) - CHOICES} more" if len(ids) > CHOICES else "")


def selected(which: str, user: str, sweeps: Iterable[Entry], config: Config) -> list[Entry]:
    """For `list`: "" is mine, and everybody's that run."""
    team = team_of(config.teams, "", user)
    there = [s for s in sweeps if s.phase is not Phase.REFUSED]
    match which:
        case "" | "mine":
            return [s for s in there if s.user == user or (not which and s.live)]
        case "running":
            return [s for s in there if s.live]
        case "team" if team:
            return [s for s in there if team_of(config.teams, "", s.user) == team]
        case "team":
            raise UserError("You aren't in a team. Ask an admin to add you under `teams:`.")
    raise UserError(f"Unknown list “{shortened(unescape(which))}”. Usage: {USES['list']}.")
