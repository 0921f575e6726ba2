"""The search space of a sweep over seeds: one command, each seed exactly once, without a space file. Pure."""

from bot.config.policy import Config
from bot.core.errors import UserError
from bot.core.flags import FlagStyle
from bot.core.request import SweepRequest
from bot.core.seeds import parse_seeds
from bot.core.space import Goal, Parameter, SearchSpace
from bot.spaces.metrics import metric_objection, read_source
from bot.spaces.space_keys import DEFAULT_PARALLEL


def seed_space(request: SweepRequest, config: Config) -> SearchSpace:
    """Return a grid of the seeds. A failed seed stops no other one. Raises UserError."""
    limits, defaults, search = config.limits, config.seeds, request.promotes
    seeds = parse_seeds(request.seeds or "", limits.trials)
    parallel = request.parallel or DEFAULT_PARALLEL
    source, path = read_source(None, request)
    metric = request.metric or defaults.metric
    if why := metric_objection(metric, source):
        raise UserError(why, field="metric")
    return SearchSpace(
        name=request.space,
        command=request.cmd or "",
        metric=metric,
        goal=Goal(request.goal or defaults.goal),
        algorithm="grid",
        max_trials=len(seeds),
        parallel=min(parallel, limits.parallel, len(seeds)),
        auto=request.auto,
        max_failed=len(seeds),
        trial_hours=limits.trial_hours,
        parameters=(Parameter(name=defaults.parameter, values=tuple(map(str, seeds))),),
        image=request.image or "",
        source=source,
        metrics_path=path,
        flags=FlagStyle(request.flags or FlagStyle.DOTS),
        strategy=search.strategy if search else {},
        volumes=search.volumes if search else (),
        env=search.env if search else {},
        secrets=search.secrets if search else (),
        output_flag=search.output_flag if search else "",
        seed=defaults.parameter,
    )
