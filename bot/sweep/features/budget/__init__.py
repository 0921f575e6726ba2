"""`budget=`: count GPU-hours, and start no trials that the budget has no room for."""

from bot.core.commands import Action
from bot.core.record import ACTIVE, Phase
from bot.sweep.features.budget.decide import (
    BudgetState,
    follow,
    lines,
    prepare,
    raise_denial,
    raised,
    requeue,
    restart_denial,
    used,
)
from bot.sweep.model.experiment import ended_by_lowered_count
from bot.sweep.model.feature import CommandRule, Feature, Moment, Step
from bot.sweep.model.pace import steer

FEATURE = Feature(
    name="budget",
    states=(BudgetState,),
    steps=(Step(at=Moment.FIRST_TRIAL, phases=frozenset(ACTIVE | {Phase.STOPPING}), decide=follow),),
    commands={Action.BUDGET: CommandRule(denial=raise_denial, apply=raised)},
    requeue=requeue,
    prepare=prepare,
    continues=ended_by_lowered_count,
    steer=steer,
    restart_denial=restart_denial,
    lines=lines,
    saved=used,
)
