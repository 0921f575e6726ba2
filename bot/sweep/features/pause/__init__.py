"""Pause a sweep, so that all of its GPUs are free, and resume it later."""

from bot.core.commands import Action
from bot.core.record import ACTIVE, Phase
from bot.sweep.features.pause import decide
from bot.sweep.features.pause.decide import PauseState
from bot.sweep.model.feature import CommandRule, Feature, Moment, Step

FEATURE = Feature(
    name="pause",
    states=(PauseState,),
    decisive=lambda sweep: (sweep.of(PauseState).at, sweep.of(PauseState).resuming),
    steps=(Step(at=Moment.NEXT, phases=frozenset(ACTIVE | {Phase.PAUSED}), decide=decide.follow),),
    continues=decide.is_paused,
    changes=decide.changes,
    steer=decide.steer,
    commands={
        Action.PAUSE: CommandRule(
            denial=decide.pause_denial,
            apply=decide.pausing,
            button=decide.PAUSE,
        ),
        Action.PAUSE_NOW: CommandRule(
            denial=decide.pause_denial,
            apply=decide.pausing,
            button=decide.PAUSE_NOW,
        ),
        Action.RESUME: CommandRule(
            denial=decide.resume_denial,
            apply=decide.resume,
            button=decide.RESUME,
            counts_again=True,
            restarts=True,
        ),
    },
    restarted=decide.restarted,
    drain_denial=decide.drain_denial,
    cause=decide.cause,
    lines=decide.lines,
    buttons=decide.buttons,
)
