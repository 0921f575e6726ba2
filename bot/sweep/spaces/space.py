"""Read a whole space file with the command's options over it: all errors together, keys that rule each other
out, and the largest grid. Pure.

All rules of Katib are checked here, before a build: its webhook would reject them late, and what
only its suggestion service or metrics collector rejects leaves a sweep hanging without an error.
"""

from bot.core.flags import FlagStyle
from bot.core.request import SweepRequest
from bot.core.space import Parameter, SearchSpace
from bot.core.stopping import StoppingRule
from bot.platform.config.idle_thresholds import read_watch
from bot.platform.config.limits import Limits
from bot.platform.config.section import read_each
from bot.platform.config.yaml_reader import FileError, Node, read
from bot.sweep.spaces import katib_file, wandb_file
from bot.sweep.spaces.algorithms import read_algorithm
from bot.sweep.spaces.bounds import bounded
from bot.sweep.spaces.early_stopping import read_early_stopping
from bot.sweep.spaces.foreign import is_katib, is_wandb
from bot.sweep.spaces.metrics import metric_objection, read_objective, read_source
from bot.sweep.spaces.parameters import read_parameters, size
from bot.sweep.spaces.space_keys import SpaceFile
from bot.sweep.spaces.trials import read_trials

INLINE = "your space"  # the file name in errors about a space written in the form
MAX_NOTES = 20
MAX_COMBINATIONS = 100_000  # Katib's grid service keeps them all in memory
ENDLESS = 10**15  # combinations; a few ranges can have a number with thousands of digits


def parse_space(text: str, file: str, request: SweepRequest, limits: Limits) -> SearchSpace:
    """Read the file; options of the command override it. Raises UserError with all errors."""
    root, notes = _converted(read(text, file), request)
    given = {"command": request.cmd, "objective": request.metric and request.goal}
    space, keys = read_each(SpaceFile, root, given=[key for key, value in given.items() if value])
    algorithm, settings = read_algorithm(space.algorithm)
    if request.algorithm and request.algorithm != algorithm:
        algorithm, settings = request.algorithm, {}
    source, path = read_source(space.metrics, request)
    objective, goals = read_objective(space.objective, request, source)
    if request.metric and (why := metric_objection(request.metric, source)):
        root.errors.append(FileError(0, why, field="metric"))
    flags, switches = FlagStyle(request.flags or space.flags), space.booleans == "switch"
    if switches and not flags.has_switches:
        keys["booleans"].error(f"switch needs flags that start with --; got flags: {flags}")
    parameters, fixed = read_parameters(space.parameters, algorithm, settings, flags)
    if not root.errors:
        parameters = bounded(parameters, request.where)
    grid = _grid(root, parameters, limits) if algorithm == "grid" else None
    counts, trials = read_trials(root, space.trials, request, limits, grid)
    command = request.cmd or space.command.strip()  # YAML's > and | leave a line break
    early = read_early_stopping(space.early_stopping, source, command, counts.max)
    if goals and early:
        keys["early_stopping"].error("judges by one metric; remove it, or the other objectives")
    if space.nodes and space.nodes > limits.nodes_per_trial:
        most = f"{limits.nodes_per_trial} on this cluster (limits.nodes_per_trial)"
        keys["nodes"].error(f"can be at most {most}; got {space.nodes}")
    watch = read_watch(space.watch) if space.watch else {}
    root.check()
    return SearchSpace(
        name=request.space,
        command=command,
        metric=objective.metric,
        goal=objective.goal,
        target=objective.target,
        additional=objective.additional,
        goals=goals,
        strategy=objective.strategy,
        source=source,
        metrics_path=path,
        flags=flags,
        switches=switches,
        fixed=fixed,
        early_stopping=early if isinstance(early, dict) else None,
        stopping=early if isinstance(early, StoppingRule) else None,
        notes=notes,
        algorithm=algorithm,
        settings=settings,
        max_trials=counts.max,
        parallel=counts.parallel,
        auto=request.auto,
        max_failed=counts.max_failed,
        trial_hours=trials.trial_hours,
        max_hours=trials.max_hours,
        budget=trials.budget,
        grace_seconds=trials.grace_seconds,
        nodes=space.nodes,
        parameters=parameters,
        finish_running=space.running_at_target == "finish",
        extendable=space.extendable,
        volumes=space.volumes,
        env=space.env,
        secrets=space.secrets,
        output_flag=space.output_flag,
        image=request.image or space.image,
        watch=watch,
    )


def _converted(root: Node, request: SweepRequest) -> tuple[Node, tuple[str, ...]]:
    """Return the file as a space file, and what of another tool's file isn't used."""
    for applies, convert in ((is_wandb, wandb_file.convert), (is_katib, katib_file.convert)):
        if applies(root):
            converted, notes = convert(root, request)
            return converted, tuple(notes[:MAX_NOTES])
    return root, ()


def combinations(parameters: tuple[Parameter, ...]) -> int | None:
    """Return the number of different trials; None if a range has no steps."""
    found = 1
    for count in map(size, parameters):
        if count is None:
            return None
        found = min(found * max(count, 1), ENDLESS)
    return found


def _grid(root: Node, parameters: tuple[Parameter, ...], limits: Limits) -> int:
    found = None if root.errors else combinations(parameters)
    if found and found > MAX_COMBINATIONS:
        root.error(
            f"the grid has {found:,} combinations; the limit is {MAX_COMBINATIONS:,}. "
            "Use fewer values or larger steps."
        )
    return found or limits.trials  # an invalid grid must not make its counts look invalid
