"""`early_stopping:`: stop trials whose live values are worse than those of others (`bot.core.stopping`)."""

from bot.core.record import ACTIVE, Phase
from bot.sweep.features.early_stopping.decide import EarlyStoppingState, changes, follow, observe, savings
from bot.sweep.model.feature import Feature, Step

FEATURE = Feature(
    name="early_stopping",
    states=(EarlyStoppingState,),
    decisive=lambda sweep: sweep.of(EarlyStoppingState).ending,
    observe=observe,
    changes=changes,
    saved=savings,
)
STEP = Step(phases=frozenset(ACTIVE | {Phase.STOPPING}), decide=follow)
