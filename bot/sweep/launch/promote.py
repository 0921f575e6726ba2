"""Promote a search's best parameters (`/sweep promote`): run them with several seeds, on the commit of the
search, or say why they can't be. Pure.
"""

from collections.abc import Mapping
from dataclasses import replace

from bot.core.commands import Action
from bot.core.errors import UserError
from bot.core.record import SweepRecord
from bot.core.request import SEEDS, Promotion, SweepRequest
from bot.core.seeds import seeds_option
from bot.core.space import MetricSource, SearchSpace, command_line
from bot.platform.commands.grammar import Command
from bot.platform.config.policy import Config
from bot.sweep.launch.command_line import changed, parse_options
from bot.sweep.launch.options import LAUNCH, OPTIONS

DEFAULT_SEEDS = "5"
FIRST_SEED = 1  # 0 is the usual default of programs, with which a search without a seed has run already
CHANGEABLE = {"seeds", "gpus", "nodes", "profile", "parallel", "name", "notify", "max_hours", "budget"}
CHANGEABLE |= {"cluster", "queue", "priority"}
PROMOTE = Command(
    "promote",
    Action.PROMOTE,
    tuple(each for each in OPTIONS if each.key in CHANGEABLE),  # none that changes the result
    usage="[SWEEP] [seeds=5]",
    elsewhere=lambda key: "`promote` repeats the best trial as it is." * (key in LAUNCH.by_key),
)


def promoted(sweep: SweepRecord, changes: str, config: Config) -> SweepRequest:
    """Return the request for the seeds. `changes`: options as typed. Raises UserError."""
    best, plan = sweep.progress.best, sweep.plan
    if sweep.request.seeds:
        raise UserError(f"`{sweep.id}` ran one command with several seeds; it has no best parameters.")
    if plan and plan.branches:
        raise UserError(
            f"`{sweep.id}` compared branches, in pairs with seeds; it has no best trial to promote."
        )
    if best is None or plan is None:
        raise UserError(f"`{sweep.id}` has no result with a finite objective to promote.")
    if not sweep.phase.final:
        raise UserError(f"`{sweep.id}` is still running. Promote its best parameters when it has ended.")
    space = plan.space
    request = SweepRequest(
        branch=sweep.request.branch,
        space=SEEDS,
        gpus=plan.gpus,
        nodes=plan.nodes,
        profile=sweep.request.profile,
        cluster=sweep.request.cluster,
        queue=sweep.request.queue,
        priority=sweep.request.priority,
        repo=sweep.request.repo,
        image=sweep.request.image or space.image or None,
        name=sweep.request.name or sweep.request.space,
        cmd=promoted_command(space, best.parameters, config),
        notify=sweep.request.notify,
        seeds=DEFAULT_SEEDS,
        metric=space.metric,
        goal=space.goal,
        metrics=space.metrics_path if space.source is MetricSource.FILE else space.source,
        flags=space.flags,
    )
    options = parse_options(changes, PROMOTE)
    former = Promotion(
        sweep=sweep.id,
        trial=best.trial,
        value=best.value,
        strategy=space.strategy,
        volumes=space.volumes,
        env=space.env,
        secrets=space.secrets,
        output_flag=space.output_flag,
        seed=own_seed(space, best.parameters, config),
    )
    after = changed(request, changes, config)
    if (count := options.get("seeds", DEFAULT_SEEDS)).isdecimal():
        after = replace(after, seeds=new_seeds(int(count), former.seed))
    return replace(after, commit=plan.commit, promotes=former)


def own_seed(space: SearchSpace, parameters: Mapping[str, str], config: Config) -> str:
    """Return the seed with which the best trial ran; "" if the search set none."""
    name = config.seeds.parameter
    return parameters.get(name) or space.fixed.get(name, "")


def new_seeds(count: int, used: str) -> str:
    """Return so many seeds as an option, without the one of the best trial."""
    unused = [seed for seed in range(FIRST_SEED, FIRST_SEED + count + 1) if str(seed) != used]
    return seeds_option(unused[:count])


def promoted_command(space: SearchSpace, parameters: Mapping[str, str], config: Config) -> str:
    """Return the command with the best parameters, without a seed among them."""
    name = config.seeds.parameter
    fixed = {key: value for key, value in space.fixed.items() if key != name}
    return command_line(replace(space, fixed=fixed), {k: v for k, v in parameters.items() if k != name})
