"""Several nodes per trial: without a queue, sweeps wait for each other, and workers need more than a Job."""

from bot.core.record import ACTIVE
from bot.sweep.features.nodes import decide
from bot.sweep.features.nodes.decide import NodesState
from bot.sweep.features.nodes.observe import observe
from bot.sweep.model.feature import Feature, Step

FEATURE = Feature(
    name="nodes",
    states=(NodesState,),
    observe=observe,
    changes=decide.changes,
    restarted=decide.restarted,
    drain_denial=decide.drain_denial,
    headline=decide.headline,
    problem=decide.problem,
)
STEP = Step(phases=frozenset(ACTIVE), decide=decide.follow_start)
