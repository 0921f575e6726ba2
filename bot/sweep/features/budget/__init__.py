"""`budget=`: count GPU-hours, and start no trials that the budget has no room for."""

from bot.core.record import ACTIVE, Phase
from bot.sweep.features.budget.decide import BudgetState, follow, lines, requeue, used
from bot.sweep.model.feature import Feature, Step

FEATURE = Feature(name="budget", states=(BudgetState,), requeue=requeue, lines=lines, saved=used)
STEP = Step(phases=frozenset(ACTIVE | {Phase.STOPPING}), decide=follow)
