"""The command `ci`: a sweep for a pull request, compared with one of its base, the branch to merge into.

The branch has Passed, is Worse, or Undecided, by the paired 95% interval over trials with the same
parameters; the comment's Markdown has a table and a picture.
"""

import argparse
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from hashlib import sha256
from statistics import fmean
from typing import Any

from bot.core.errors import UserError
from bot.core.seeds import statistics
from bot.platform.commands.grammar import Parsed
from bot.remote.answers import Answer
from bot.remote.api import Sweepbot, connect, say
from bot.remote.checkout import naming
from bot.remote.ci_host import PullRequest, comment, pull_request
from bot.remote.client import Sweep
from bot.remote.commands import FAILED, INTERRUPTED, follow
from bot.sweep.launch.command_line import TABLE
from bot.sweep.launch.options import LAUNCH
from bot.sweep.results.ranking import clipped
from bot.text.masking import Mask, secrets_in_environment
from bot.text.terminal import typed
from bot.text.wording import counted, printable

MIN_PAIRS = 3  # the interval of two is so wide that it confirms nearly every value
MAX_ROWS = 20  # of the table, and points of the picture
MAX_CELL = 80  # characters
ENDED_BADLY = {"failed", "cancelled", "refused"}

Trial = Mapping[str, Any]  # as the API has it
Pair = tuple[str, float, float]  # the parameters, the base's value, and the branch's


@dataclass(frozen=True, kw_only=True)
class Verdict:
    passed: bool
    text: str  # Markdown
    pairs: tuple[Pair, ...] = ()


def run_ci(arguments: argparse.Namespace) -> int:
    """Run the sweeps, keep the comment, and return 0 if the rule holds. Raises UserError."""
    pull, client = pull_request(os.environ), connect()  # a fork's job has no token
    options = TABLE.read(LAUNCH, typed(arguments.request))
    marker = f"<!-- sweepbot ci {_digest(arguments.name)} -->"
    try:
        new, base = _launched(client, options, pull)
        follow(client.events(new), as_json=False)
        follow(client.events(base), as_json=False)
        ended = client.show(new), client.show(base)
        decided = _decided(client, *ended, arguments.max_worse)
        text = Mask(secrets_in_environment(os.environ))(report(arguments.name, *ended, decided))
        print(text)
        try:
            comment(pull, marker, text)
        except UserError as error:  # the job's result doesn't depend on it
            say(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0 if decided.passed else FAILED


def _launched(client: Sweepbot, options: Parsed, pull: PullRequest) -> tuple[str, str]:
    """Start both sweeps, and return their names.

    For a day, pull requests share that of the base's commit, unless it has already ended without success.
    """

    def start(branch: str, about: str) -> str:
        command = _on(options, branch)
        return str(client.launch(command, f"ci/{_digest(f'{about} {command}')}")["id"])

    new, base = start(pull.branch, pull.run), start(pull.base, pull.base_commit or pull.run)
    if client.show(base)["state"] in ENDED_BADLY:
        base = start(pull.base, pull.run)
    return new, base


def _on(options: Parsed, branch: str) -> str:
    """Nobody is there to decide about a first trial that failed."""
    return naming(
        branch, replace(options, options={"gate": "off", **options.options, "branch": branch}).typed
    )


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:32]


def _decided(client: Sweepbot, new: Sweep, base: Sweep, max_worse: float) -> Verdict:
    for each in (new, base):
        if each["state"] != "succeeded":
            why = f"the sweep of {code(each['branch'])} ended as {each['state']}"
            return Verdict(passed=False, text=f"**Failed**: {why}.")
    found = pairs(*(client.results(each["id"]) for each in (base, new)))
    return verdict(found, (new["objective"] or Answer())["goal"], base["branch"], max_worse)


def pairs(base: Iterable[Trial], new: Iterable[Trial]) -> tuple[Pair, ...]:
    """Return the values of trials with the same parameters, in an order that doesn't depend on them."""
    known, values = (
        {_parameters(each): clipped(each["value"]) for each in trials if each["value"] is not None}
        for trials in (base, new)
    )
    both = sorted(known.keys() & values.keys(), key=_order)
    return tuple((" ".join("=".join(each) for each in one), known[one], values[one]) for one in both)


def _parameters(trial: Trial) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((str(name), str(value)) for name, value in trial["parameters"].items()))


def _order(parameters: tuple[tuple[str, str], ...]) -> list[tuple[float, str]]:
    return [(float(text) if text.isdecimal() else 0.0, text) for _, text in parameters]


def verdict(found: Sequence[Pair], goal: str, base: str, max_percent: float) -> Verdict:
    """Decide by the paired differences, relative to the base's mean: the whole 95% interval is allowed.

    Args:
        goal: minimize or maximize.
        max_percent: by how much the branch can be worse.
    """
    limit, name = f"{max_percent:g}%", code(base)
    rule = f"The rule: not worse than {name} by more than {limit}, by the paired 95% interval."
    if len(found) < MIN_PAIRS:
        why = f"{counted(len(found), 'pair')} of trials with the same parameters; {MIN_PAIRS} are needed."
        fix = "Use a grid, or `seeds=`, so that both sweeps try the same parameters."
        return Verdict(passed=False, text=f"**Undecided**: {why} {fix}\n\n{rule}", pairs=tuple(found))
    mean = abs(fmean(old for _, old, _ in found))
    sign = -1 if goal == "maximize" else 1
    worse = statistics([sign * (new - old) for _, old, new in found])
    if not (mean and worse and worse.interval):
        return Verdict(
            passed=False, text=f"**Undecided**: the mean of {name} is 0.\n\n{rule}", pairs=tuple(found)
        )
    low, high = (100 * each / mean for each in worse.interval)
    middle = 100 * worse.mean / mean
    size = f"{abs(middle):.2f}% {'better' if middle < 0 else 'worse'} than" if middle else "The same as"
    span = f"{0.0 - high:+.2f}% to {0.0 - low:+.2f}%"
    text = f"{size} {name} on average of {len(found)} pairs (95% interval {span}; + is better)."
    state = "Passed" if high <= max_percent else "Worse" if low > max_percent else "Undecided"
    more = " More seeds or trials narrow the interval." if state == "Undecided" else ""
    return Verdict(passed=state == "Passed", text=f"**{state}**: {text}{more}\n\n{rule}", pairs=tuple(found))


def report(title: str, new: Mapping[str, Any], base: Mapping[str, Any], decided: Verdict) -> str:
    """Return the comment in Markdown: verdict, sweeps, picture, and table.

    Args:
        title: of this check.
        new: the sweep of the branch, as the API shows it; `base`: the other one.
    """
    lines = [f"### {_only(' ._=-,:/', title)}", "", decided.text, ""]
    for each in (new, base):
        best = (each["best"] or {"value": None})["value"]
        value = "" if best is None else f", best {best:.6g}"
        thread = f" ([thread]({each['thread']}))" if each["thread"] else ""
        commit = f" @ {code(each['commit'][:8])}" if each["commit"] else ""
        lines.append(f"- {code(each['branch'])}{commit}: {code(each['id'])} {each['state']}{value}{thread}")
        if each["reason"] and each["state"] != "succeeded":
            lines.append(f"  {code(each['reason'], 300)}")
    if decided.pairs:
        lines += ["", *_picture(decided.pairs, new, base), "", *_table(decided.pairs, new, base)]
    return "\n".join(lines)


def _picture(found: Sequence[Pair], new: Mapping[str, Any], base: Mapping[str, Any]) -> list[str]:
    """GitHub and GitLab draw Mermaid, whose numbers have no exponents; neither takes a file from a job."""
    shown = found[:MAX_ROWS]
    olds, news = ([f"{Decimal(f'{each[of]:.6g}'):f}" for each in shown] for of in (1, 2))
    numbers = ", ".join(str(number) for number in range(1, len(shown) + 1))
    return [
        "```mermaid",
        "xychart-beta",
        f"    x-axis [{numbers}]",
        f'    y-axis "{_only(" ._/-", new["objective"]["metric"])}"',
        f"    bar [{', '.join(olds)}]",
        f"    line [{', '.join(news)}]",
        "```",
        f"Bars: {code(base['branch'])}; line: {code(new['branch'])}; by row of the table.",
    ]


def _table(found: Sequence[Pair], new: Mapping[str, Any], base: Mapping[str, Any]) -> list[str]:
    head = f"| | parameters | {code(base['branch'])} | {code(new['branch'])} | change |"
    rows = [head, "|--:|---|--:|--:|--:|"]
    for number, (parameters, old, value) in enumerate(found[:MAX_ROWS], 1):
        change = f"{100 * (value - old) / abs(old):+.2f}%" if old else ""
        rows.append(f"| {number} | {code(parameters)} | {old:.6g} | {value:.6g} | {change} |")
    return [*rows, *([f"… and {len(found) - MAX_ROWS} more"] if len(found) > MAX_ROWS else [])]


def _only(signs: str, text: str) -> str:
    """Return the letters, the digits, and these signs."""
    return "".join(each for each in printable(text) if each.isalnum() or each in signs)[:MAX_CELL]


def code(text: str, most: int = MAX_CELL) -> str:
    """Return text of others as code: no markup, no mention, and no end of a table's cell.

    A backslash before | doesn't help: text can have one, too, and two are one that escapes nothing.
    """
    shown = printable(text).replace("`", "'").replace("|", "¦")
    return f"`{shown[: most - 1]}…`" if len(shown) > most else f"`{shown or ' '}`"
