"""Budgets of a month: above one, a sweep waits before its build until someone approves it."""

from bot.core.commands import Action
from bot.core.record import Phase, SweepRecord
from bot.platform.config.permissions import approvers
from bot.sweep.clients import SweepClients
from bot.sweep.features.approval import decide
from bot.sweep.features.approval.decide import ApprovalState, SpendingSeen
from bot.sweep.launch.spending import APPROVAL, GROUP, allowances
from bot.sweep.model.feature import CommandRule, Feature, Step
from bot.sweep.model.observation import Observation


async def observe(sweep: SweepRecord, seen: Observation, clients: SweepClients) -> Observation:
    """Add the limits and what is used of them, while it isn't known whether the sweep fits."""
    if sweep.phase is not Phase.OPENING or APPROVAL not in sweep.holds:
        return seen
    check = await clients.store.limit_check(GROUP)
    own = SpendingSeen(
        allowances=await allowances(sweep.requester, clients, besides=sweep.id),
        approvers=approvers(sweep.requester.user, clients.config),
        days=clients.config.budgets.days,
    )
    return seen.put(own, limit_check=check)


FEATURE = Feature(
    name="approval",
    states=(ApprovalState,),
    planned=decide.planned,
    observe=observe,
    commands={
        Action.APPROVE: CommandRule(
            denial=decide.approval_denial, apply=decide.approved, button=decide.APPROVE
        ),
        Action.DECLINE: CommandRule(
            denial=decide.approval_denial, apply=decide.declined, button=decide.DECLINE
        ),
    },
    headline=decide.headline,
    problem=decide.problem,
    buttons=decide.buttons,
)
STEP = Step(phases=frozenset({Phase.OPENING}), decide=decide.follow)
