"""What sweeps can use before someone must approve more: `budgets:` of the configuration."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from bot.core.budget import amount_of
from bot.platform.config.rules import Key, Problem, Several
from bot.platform.config.section import Section
from bot.platform.config.value_types import AmountText, Member, Whole


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
