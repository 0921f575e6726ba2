"""What the sweeps of a person, a team, or a token use in a month, the forecast of another one, and why it
exceeds a budget.

Ended sweeps count with what they used, in the month in which they ended, and all others with their forecast.
A sweep that waits for approval doesn't count.
"""

from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass, replace
from statistics import fmean

from bot.core.budget import GPU_HOURS, Amount, Forecast, amount_of
from bot.core.plan import SweepPlan
from bot.core.record import APPROVAL, SweepRecord
from bot.core.request import Requester, is_team
from bot.platform.config.policy import Config
from bot.platform.config.teams import granted_team, prices_for, team_of
from bot.sweep.clients import SweepClients
from bot.sweep.results.models import Spent, SweepResults
from bot.sweep.results.store import ResultsStore
from k8s.engine import TrialState

GROUP = "budgets"  # of all checks: two sweeps at once must not both get what is left


@dataclass(frozen=True, kw_only=True)
class Limit:
    """How much some sweeps can use without approval."""

    whose: str  # for users
    amount: Amount
    owners: frozenset[str] | None = None  # of the sweeps that count; None: only the new one does
    account: str = ""  # that they have; "": any


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """A limit, and what other sweeps use of it."""

    limit: Limit
    used: float = 0.0  # in the unit of its amount, in this month
    expected: float = 0.0  # the same, of sweeps that haven't ended

    @property
    def left(self) -> float:
        return max(0.0, self.limit.amount.number - self.used - self.expected)

    def refusal(self, forecast: Forecast) -> str:
        """Return why a sweep doesn't fit; "" if it does."""
        amount, number = self.limit.amount, forecast.of(self.limit.amount)
        if number is not None and number <= self.left:
            return ""
        known = "the forecast is unknown" if number is None else f"the forecast is {amount.text(number)}"
        if self.limit.owners is None:
            return f"{known}, and one sweep can use {amount.text()}"
        taken = amount.text(self.used + self.expected).removesuffix(GPU_HOURS)
        others = f", {amount.text(self.expected)} of it for unfinished sweeps" if self.expected else ""
        return f"{known}, and {self.limit.whose} has used {taken} of {amount.text()} this month{others}"


def limits(requester: Requester, config: Config) -> tuple[Limit, ...]:
    """Return the limits that a new sweep has. Pure."""
    user, budgets = requester.user, config.budgets
    team = granted_team(config.teams, user, config.self_assigned)
    found = []
    if requester.account:
        amount = amount_of(requester.account_budget)
        found.append(
            Limit(whose="the token", amount=amount, owners=frozenset({user}), account=requester.account)
        )
    if budgets.sweep:
        found.append(Limit(whose="", amount=amount_of(budgets.sweep)))
    if budgets.person and not is_team(user):
        whose = requester.user_name or "this person"
        found.append(Limit(whose=whose, amount=amount_of(budgets.person), owners=frozenset({user})))
    if team and (text := team.budget or budgets.team):
        members = frozenset({user, *team.users})
        found.append(Limit(whose=f"team {team.name}", amount=amount_of(text), owners=members))
    return tuple(found)


async def with_forecast(
    made: SweepPlan, price: float, requester: Requester, clients: SweepClients
) -> SweepPlan:
    """Return the plan with a forecast if a limit needs one: as usual, or else at most; its budget as usual.

    Raises ApiError, UnreachableError.
    """
    is_limited = bool(limits(requester, clients.config))
    if not (is_limited or made.budget):
        return made
    each = await usual_gpu_hours(made, clients.kept_results) if made.trial_gpus else 0.0
    made = replace(made, budget=made.budget and replace(made.budget, usual=each))
    if not is_limited:
        return made
    if each is None and made.space.trial_hours:
        each = made.trial_gpus * made.space.trial_hours
    return replace(made, trial_forecast=Forecast(gpu_hours=each, price=price))


async def allowances(
    requester: Requester, clients: SweepClients, excluded: str = ""
) -> tuple[Allowance, ...]:
    """Return all limits of a new sweep with what other sweeps use of them.

    Args:
        excluded: the ID of the new sweep, which doesn't count.

    Raises ApiError, UnreachableError, RedisError.
    """
    config = clients.config
    found = limits(requester, config)
    if all(each.owners is None for each in found):
        return tuple(Allowance(limit=each) for each in found)
    listed = await clients.store.listed()  # before the results: what ends in between counts twice, for now
    owners = frozenset[str]().union(*(each.owners or () for each in found))
    ids = [one.id for one in listed if one.user in owners and one.id != excluded and (one.live or one.unsent)]
    records = await clients.store.records(ids)
    kept = await clients.kept_results.spent(clients.now())
    spent = {each.sweep: each for each in kept if each.sweep != excluded}
    return tuple(_allowance(each, records, spent, config) for each in found)


def _allowance(
    limit: Limit, records: Iterable[SweepRecord], spent: dict[str, Spent], config: Config
) -> Allowance:
    if limit.owners is None:
        return Allowance(limit=limit)
    unfinished = {one.id: one for one in records if not one.phase.final or one.id not in spent}
    who = ((one, one.requester) for one in unfinished.values() if APPROVAL not in one.holds)
    counted = [one.plan for one, by in who if _counts(limit, by.user, by.account)]
    forecasts = [plan.forecast.of(limit.amount) for plan in counted if plan and plan.forecast]
    ended = [each for each in spent.values() if each.sweep not in unfinished]
    used = [_used(each, limit.amount, config) for each in ended if _counts(limit, each.owner, each.account)]
    return Allowance(limit=limit, used=sum(used), expected=sum(filter(None, forecasts)))


def _counts(limit: Limit, owner: str, account: str) -> bool:
    return owner in (limit.owners or ()) and limit.account in {"", account}


def _used(spent: Spent, amount: Amount, config: Config) -> float:
    """GPU-hours without a measured model cost the highest price."""
    if not amount.currency:
        return spent.gpu_hours
    team = team_of(config.teams, "", spent.owner)
    dearest = max((each.hourly for each in prices_for(config.prices, team)), default=0.0)
    return spent.cost + spent.unpriced * dearest


USUAL = {TrialState.SUCCEEDED, TrialState.STOPPED_EARLY}


async def usual_gpu_hours(plan: SweepPlan, kept: ResultsStore) -> float | None:
    """Return the mean of the latest sweep of the repository and space with as many GPUs; None without one.

    Only trials that succeeded or were stopped early count: one that failed can have ended at once.

    Raises ApiError, UnreachableError.
    """
    latest: SweepResults | None = None
    async with aclosing(kept.of_space(plan.space.name)) as sweeps:
        async for each in sweeps:
            same = (each.repo_url, each.gpus, each.nodes) == (plan.repo_url, plan.gpus, plan.nodes)
            if same and _known(each) and (latest is None or each.ended > latest.ended):
                latest = each
    return fmean(_known(latest)) if latest else None


def _known(results: SweepResults) -> list[float]:
    return [trial.gpu_hours for trial in results.trials if trial.gpu_hours and trial.state in USUAL]
