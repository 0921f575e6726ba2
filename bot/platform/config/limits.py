"""Who can start sweeps, the most that one can request, and what sweeps can use before someone must approve
more: `limits:`, `launch:`, and `budgets:` of the configuration.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from bot.core.budget import amount_of
from bot.platform.config.rules import Key, Problem, Several
from bot.platform.config.section import Section
from bot.platform.config.value_types import AmountText, Channel, Member, Number, Whole

A_MINUTE, MAX_HOURS = 1 / 60, 2**31 // 3600  # hours; Kubernetes rejects deadlines of 2**31 seconds or more


def _hours(hours: float) -> float:
    if hours < A_MINUTE:
        raise ValueError(f"must be at least {A_MINUTE:.3f} (one minute); got {hours:g}")
    if hours > MAX_HOURS:
        raise ValueError(f"must be at most {MAX_HOURS}. Omit it for no limit.")
    return hours


Hours = Annotated[
    Number,
    AfterValidator(_hours),
    WithJsonSchema({"type": "number", "minimum": A_MINUTE, "maximum": MAX_HOURS}),
]


@dataclass(frozen=True, kw_only=True)
class Limits(Section):
    """Maximum request of one sweep."""

    gpus_per_trial: Annotated[Whole, Key("4", least=0)] = 8
    """Maximum GPUs of one trial on each of its nodes."""
    nodes_per_trial: Annotated[Whole, Key("16", least=1)] = 8
    """Maximum nodes of one trial."""
    parallel: Annotated[Whole, Key("8", least=1)] = 16
    """Maximum parallel trials of one sweep; `parallel=auto` grows up to it."""
    trials: Annotated[Whole, Key("200", least=1)] = 500
    """Maximum trials of one sweep."""
    trial_hours: Annotated[Hours | None, Key("24", "no limit")] = None
    """Maximum run time of one trial, in hours."""
    # From SIGTERM to SIGKILL; GPUs stay allocated meanwhile.
    grace_seconds: Annotated[Whole, Key("900", least=1)] = 600
    """Maximum `trials.grace_seconds` of a space file."""


@dataclass(frozen=True, kw_only=True)
class Launch(Section):
    """Who can start sweeps and where; empty allows everyone everywhere. Admins always can."""

    channels: Annotated[Several[Channel], Key("[C012ABC]", "all")] = ()
    """Slack channels where sweeps can be started."""
    people: Annotated[Several[Member], Key("[U012ABC]", "everyone")] = ()
    """Slack users who can start sweeps."""
    gpus: Annotated[Whole | None, Key("16", "no limit", least=0)] = None
    """Maximum peak GPUs of one sweep: parallel trials × nodes × GPUs per node."""
    gpus_per_person: Annotated[Whole | None, Key("32", "no limit", least=0)] = None
    """Maximum peak GPUs of all active sweeps of one person."""


@dataclass(frozen=True, kw_only=True)
class Budgets(Section):
    """GPU-hours such as `400`, or money such as `$1000`. Months are those of UTC."""

    sweep: Annotated[AmountText, Key("100", "no limit")] = ""
    """What one sweep can be expected to use without approval."""
    person: Annotated[AmountText, Key("400", "no limit")] = ""
    """What all sweeps of one person can use in a month without approval."""
    team: Annotated[AmountText, Key("$5000", "no limit")] = ""
    """What all sweeps of a team's members can use in a month without approval."""
    approvers: Annotated[Several[Member], Key("[U012ABC]", "`admins`")] = ()
    """Slack users who can approve the sweeps of others. Admins always can, also their own."""
    days: Annotated[Whole, Key("7", least=1, most=30)] = 3
    """Days for which a sweep waits for approval; then it ends. Approvers are reminded once a day."""


def budget_problems(
    budgets: Budgets, of_teams: Sequence[str], of_ci: Sequence[str], currency: str, *, has_approvers: bool
) -> Iterator[Problem]:
    """Yield what is wrong with the amounts next to other sections.

    Args:
        of_teams: the budgets of teams, in order; "" is none. `of_ci`: those of `api.ci`.
        currency: of the prices; "" if there are none.
    """
    named: dict[tuple[str | int, ...], str] = {
        ("budgets", name): getattr(budgets, name) for name in ("sweep", "person", "team")
    }
    named |= {("teams", number, "budget"): text for number, text in enumerate(of_teams)}
    named |= {("api", "ci", number, "budget"): text for number, text in enumerate(of_ci)}
    for path, text in named.items():
        unit = amount_of(text).currency if text else ""
        if unit and not currency:
            yield path, f"{text} is money, and no prices are configured. Set GPU-hours, or `prices`."
        elif unit not in {"", currency}:
            yield path, f"must be in {currency}, the currency of the prices, or in GPU-hours; got {text}"
    if any(named.values()) and not has_approvers:
        yield "budgets", "sweeps above a budget need an approver. Set `approvers` or `admins`."
