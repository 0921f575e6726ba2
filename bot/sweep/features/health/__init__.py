"""Why the first trials aren't healthy, in one message that follows their state, and why later ones failed."""

from bot.sweep.features.health import decide, texts
from bot.sweep.features.health.collect import examine, observe
from bot.sweep.features.health.state import HealthState
from bot.sweep.model.feature import Feature, LiveMessage, Moment, Step

FEATURE = Feature(
    name="health",
    states=(HealthState,),
    observe=observe,
    examine=examine,
    steps=(Step(at=Moment.PROBLEMS, decide=decide.follow),),
    ended=decide.ended,
    lines=texts.lines,
    live_message={"health": LiveMessage.of(HealthState, texts.message, is_loud=texts.is_loud)},
)
