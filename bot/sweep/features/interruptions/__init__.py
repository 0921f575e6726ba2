"""Trials that the cluster stopped (preemption, a drained node), or whose metrics are lost, start again."""

from bot.sweep.features.interruptions import decide, texts
from bot.sweep.features.interruptions.observe import observe
from bot.sweep.features.interruptions.state import InterruptionState
from bot.sweep.model.feature import Feature, Moment, Step

FEATURE = Feature(
    name="interruptions",
    states=(InterruptionState,),
    decisive=lambda sweep: sweep.of(InterruptionState).restarted,
    observe=observe,
    steps=(Step(at=Moment.NEXT, decide=decide.follow),),
    continues=lambda _, seen: bool(seen.starting_again) or seen.reopens,
    changes=decide.changes,
    steer=decide.reopen,
    lines=texts.lines,
)
