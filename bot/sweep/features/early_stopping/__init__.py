"""`early_stopping:`: stop trials whose live values are worse than those of others (`bot.core.stopping`)."""

from bot.core.record import ACTIVE, Phase
from bot.sweep.features.early_stopping.decide import EarlyStoppingState, changes, follow, observe, savings
from bot.sweep.model.feature import Feature, Moment, Step

FEATURE = Feature(
    name="early_stopping",
    states=(EarlyStoppingState,),
    decisive=lambda sweep: sweep.of(EarlyStoppingState).ending,
    observe=observe,
    steps=(Step(at=Moment.STOPS, phases=frozenset(ACTIVE | {Phase.STOPPING}), decide=follow),),
    changes=changes,
    saved=savings,
)
