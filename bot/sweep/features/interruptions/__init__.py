"""Trials that the cluster stopped (preemption, a drained node), or whose metrics are lost, start again."""

from bot.core.record import ACTIVE
from bot.sweep.features.interruptions import decide, texts
from bot.sweep.features.interruptions.observe import observe
from bot.sweep.features.interruptions.state import InterruptionState
from bot.sweep.model.feature import Feature, Step

FEATURE = Feature(
    name="interruptions",
    states=(InterruptionState,),
    decisive=lambda sweep: sweep.of(InterruptionState).restarted,
    observe=observe,
    continues=lambda _, seen: bool(seen.starting_again) or seen.reopens,
    changes=decide.changes,
    steer=decide.reopen,
    lines=texts.lines,
)
STEP = Step(phases=frozenset(ACTIVE), decide=decide.follow)
