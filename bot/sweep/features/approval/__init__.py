"""Budgets of a month: above one, a sweep waits before its build until someone approves it."""

from bot.core.commands import Action
from bot.core.record import APPROVAL, Phase, SweepRecord
from bot.platform.config.permissions import approvers
from bot.sweep.clients import SweepClients
from bot.sweep.features.approval import decide
from bot.sweep.features.approval.decide import ApprovalState, SpendingSeen
from bot.sweep.launch.spending import GROUP, allowances
from bot.sweep.model.feature import CommandRule, Feature, LiveMessage, Moment, Step
from bot.sweep.model.observation import Observation


async def observe(sweep: SweepRecord, seen: Observation, clients: SweepClients) -> Observation:
    """Add the limits and what others use of them, until the sweep fits, and if it is to use more."""
    is_new = sweep.phase is Phase.OPENING and APPROVAL in sweep.holds
    grows = any(command.action in GROWING for command in seen.commands)
    if sweep.plan is None or sweep.plan.trial_forecast is None or not (is_new or grows):
        return seen
    check = await clients.store.limit_check(GROUP)
    own = SpendingSeen(
        allowances=await allowances(sweep.requester, clients, excluded=sweep.id),
        approvers=approvers(sweep.requester.user, clients.config),
        days=clients.config.budgets.days,
    )
    return seen.put(own, limit_checks=(*seen.limit_checks, check))


GROWING = {Action.EXTEND, Action.BUDGET}  # commands after which a sweep can use more
FEATURE = Feature(
    name="approval",
    states=(ApprovalState,),
    planned=decide.planned,
    observe=observe,
    steps=(Step(at=Moment.OPENING, phases=frozenset({Phase.OPENING}), decide=decide.follow),),
    commands={
        Action.APPROVE: CommandRule(
            denial=decide.approval_denial, apply=decide.approved, button=decide.APPROVE
        ),
        Action.DECLINE: CommandRule(
            denial=decide.approval_denial, apply=decide.declined, button=decide.DECLINE, asks_reason=True
        ),
    },
    change_denial=decide.growth_denial,
    headline=decide.headline,
    problem=decide.problem,
    buttons=decide.buttons,
    live_message={
        decide.REQUEST: LiveMessage.of(ApprovalState, decide.message, is_loud=lambda _: True),
        "approval_before": LiveMessage(
            build=decide.earlier_message,
            ts=lambda sweep: sweep.of(ApprovalState).earlier,
            fingerprint=lambda _: "",
            shown=decide.earlier_edited,
        ),
    },
)
