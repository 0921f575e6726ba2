"""Several nodes per trial (`nodes=`): without a queue, sweeps wait for each other, and workers need more than
a Job.
"""

from bot.sweep.features.nodes import decide
from bot.sweep.features.nodes.decide import NodesState
from bot.sweep.features.nodes.observe import observe
from bot.sweep.model.feature import Feature, Moment, Step

FEATURE = Feature(
    name="nodes",
    states=(NodesState,),
    observe=observe,
    steps=(Step(at=Moment.START, decide=decide.follow_start),),
    changes=decide.changes,
    restarted=decide.restarted,
    drain_denial=decide.drain_denial,
    headline=decide.headline,
    problem=decide.problem,
)
