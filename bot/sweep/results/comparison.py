"""Write the text of `/sweep compare`: best results, GPU-hours, cost, the commits between, and how the spaces
differ. Pure.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

from bot.core.seeds import statistics
from bot.core.space import Parameter, SearchSpace
from bot.platform.repos.git import Between
from bot.platform.slack.blocks import Block, section
from bot.platform.slack.message import Message
from bot.platform.slack.mrkdwn import SHORT_COMMIT, code, commit_text, quoted
from bot.sweep.results.models import SweepResults, TrialResult
from bot.sweep.results.pairs import compared, verdict
from bot.sweep.results.ranking import best
from bot.text.number_format import hours, money
from bot.text.wording import counted

ALIKE = 40  # characters shown before what differs
SHOWN_DIFFERENCES = 12  # parameters


@dataclass(frozen=True)
class Commits:
    """The difference between two commits; `error`: why git couldn't compare them."""

    between: Between | None = None
    error: str = ""


def comparable(sweeps: Sequence[SweepResults]) -> bool:
    """Return whether the best values of these sweeps can be compared."""
    return len({(each.space.metric, each.space.goal, _strategy(each.space)) for each in sweeps}) == 1


def comparison(
    sweeps: Sequence[SweepResults], commits: Sequence[Commits], link: Callable[[str], str]
) -> Message:
    """Build the message.

    Args:
        commits: between each sweep and the next one.
        link: links the sweeps that a text names.
    """
    parts = ["\n".join(_sweep(each) for each in sweeps), _verdict(sweeps)]
    for (old, new), found in zip(pairwise(sweeps), commits, strict=True):
        parts += [_commits(old, new, found), _spaces(old, new)]
    shown = [link(part) for part in parts if part]
    blocks: tuple[Block, ...] = tuple(map(section, shown))
    return Message(text="\n".join(shown), blocks=blocks)


def _sweep(results: SweepResults) -> str:
    space, found = results.space, best_trial(results)
    ran = counted(len(results.trials) + results.omitted, "trial")
    commit = f"{code(results.branch, 100)} @ {code(results.commit[:SHORT_COMMIT])}"
    value = f"best {code(space.metric)} *{found.value:.6g}*" if found else "no result"
    value = _mean(results) if space.seed else value
    value = verdict(space, compared(space, results.trials)) if space.pairs else value
    return f"{code(results.sweep)}: {value} · {ran}{_cost(results)} · {code(space.name, 60)} on {commit}"


def _mean(results: SweepResults) -> str:
    found = statistics([trial.value for trial in results.trials if trial.value is not None])
    if found is None:
        return "no result"
    spread = f" ± {found.deviation:.3g}" if found.deviation is not None else ""
    return f"mean {code(results.space.metric)} *{found.mean:.6g}*{spread}"


def _cost(results: SweepResults) -> str:
    known = [trial.gpu_hours for trial in results.trials if trial.gpu_hours is not None]
    priced = [trial.cost for trial in results.trials if trial.cost is not None]
    every = len(results.trials) + results.omitted
    used, cost = ("at least " * (len(each) < every) for each in (known, priced))
    used = f" · {used}{hours(sum(known))} GPU-h" if known else ""
    return used + (f" · {cost}{money(sum(priced), results.currency)}" if priced else "")


def _verdict(sweeps: Sequence[SweepResults]) -> str:
    if not all(each.space.names_best for each in sweeps):
        return ""
    if not comparable(sweeps):
        return "The objectives differ, so the best values can't be compared."
    tops = {each.sweep: top for each in sweeps if (top := best_trial(each))}
    first = best(sweeps[0].space.goal, tops.values())
    if first is None:
        return ""
    winners = [sweep for sweep, top in tops.items() if top.value == first.value]
    names = " and ".join(code(sweep) for sweep in winners)
    return f"Best: {names}, {first.value:.6g} ({sweeps[0].space.goal} {code(sweeps[0].space.metric)})."


def best_trial(results: SweepResults) -> TrialResult | None:
    """Return the best trial; None if no trial has a result."""
    return best(results.space.goal, results.trials, results.best)


def _commits(old: SweepResults, new: SweepResults, found: Commits) -> str:
    pair = f"{code(old.commit[:SHORT_COMMIT])} to {code(new.commit[:SHORT_COMMIT])}"
    if old.repo_url != new.repo_url:
        return f"*Code*: {code(old.sweep)} and {code(new.sweep)} are from different repositories."
    if old.commit == new.commit:
        return f"*Code*: the same commit {commit_text(old.commit, old.subject)}."
    if found.between is None:
        return f"*Code*: {pair}. The commits between them can't be listed: {quoted(found.error)}"
    added, dropped = found.between.added, found.between.dropped
    lines = [f"*Code*: {pair}, {counted(added.count, 'commit')}."]
    lines += [f"• {code(short)} {quoted(subject, 80)}" for short, subject in added.shown]
    lines += [f"{added.count - len(added.shown)} more"] if added.count > len(added.shown) else []
    if dropped.count:
        lines.append(f"Not in {code(new.sweep)}: {counted(dropped.count, 'commit')} of {code(old.sweep)}:")
        lines += [f"• {code(short)} {quoted(subject, 80)}" for short, subject in dropped.shown]
    return "\n".join(lines)


def _spaces(old: SweepResults, new: SweepResults) -> str:
    """List what differs between two spaces."""
    before, after = _facts(old.space), _facts(new.space)
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    if not changed:
        return "*Space*: the same."
    texts = {name: _differing(before.get(name, "none"), after.get(name, "none")) for name in changed}
    lines = [f"• {code(name, 60)}: {' → '.join(texts[name])}" for name in changed[:SHOWN_DIFFERENCES]]
    more = len(changed) - len(lines)
    return "\n".join(["*Space*:", *lines, *([f"{more} more"] if more else [])])


def _differing(*texts: str) -> list[str]:
    """Format texts, without all but the end of what they begin with alike: only so much is shown of each."""
    alike = [*takewhile(lambda each: len({*each}) == 1, zip(*texts, strict=False))]
    start = max(len(alike) - ALIKE, 0)
    return [code(f"…{text[start:]}" if start else text, 120) for text in texts]


def _facts(space: SearchSpace) -> Mapping[str, str]:
    facts = {
        "command": space.command,
        "objective": f"{space.goal} {space.metric} ({_strategy(space)})",
        "algorithm": space.algorithm,
        "trials": str(space.max_trials),
    }
    values = {parameter.name: _range(parameter) for parameter in space.parameters} | space.fixed
    return facts | {f"params.{name}" if name in facts else name: text for name, text in values.items()}


def _range(parameter: Parameter) -> str:
    if parameter.values:
        return ", ".join(parameter.values)
    step = f", step {parameter.step:.15g}" if parameter.step is not None else ""
    return f"{parameter.min:.15g} to {parameter.max:.15g}{', log' if parameter.log else ''}{step}"


def _strategy(space: SearchSpace) -> str:
    return space.strategies[space.metric]
