"""Read a space file. Pure.

All rules of Katib are checked here, before a build: its webhook would reject them late, and what
only its suggestion service or metrics collector rejects leaves a sweep hanging without an error.
"""

from collections.abc import Mapping

from bot.config.idle_thresholds import read_watch
from bot.config.limits import Limits
from bot.config.trial_pods import read_nodes
from bot.config.yaml_reader import FileError, Node, read
from bot.core.flags import FlagStyle
from bot.core.request import SweepRequest
from bot.core.space import Parameter, SearchSpace
from bot.core.stopping import StoppingRule
from bot.spaces import katib_file, wandb_file
from bot.spaces.additions import read_additions
from bot.spaces.algorithms import read_algorithm
from bot.spaces.early_stopping import read_early_stopping
from bot.spaces.katib_file import is_katib
from bot.spaces.metrics import choice, metric_objection, read_objective, read_source
from bot.spaces.parameters import read_parameters, size
from bot.spaces.space_keys import ELSEWHERE, KEYS
from bot.spaces.trials import read_trials
from bot.spaces.wandb_file import is_wandb

INLINE = "your space"  # the file name in errors about a space written in the form
MAX_NOTES = 20
MAX_COMBINATIONS = 100_000  # Katib's grid service keeps them all in memory
ENDLESS = 10**15  # combinations; a few ranges can have a number with thousands of digits


def parse_space(text: str, file: str, request: SweepRequest, limits: Limits) -> SearchSpace:
    """Read the file; options of the command override it. Raises UserError with all errors."""
    root, notes = _converted(read(text, file), request)
    given = {"command": request.cmd, "objective": request.metric and request.goal}
    keys = root.mapping(KEYS, given=[key for key, value in given.items() if value], elsewhere=ELSEWHERE)
    if "description" in keys and "\n" in keys["description"].text().strip():
        keys["description"].error("must be one line")
    algorithm, settings = read_algorithm(keys.get("algorithm"))
    if request.algorithm and request.algorithm != algorithm:
        algorithm, settings = request.algorithm, {}
    source, path = read_source(keys.get("metrics"), request)
    objective = read_objective(keys.get("objective"), request, source)
    if request.metric and (why := metric_objection(request.metric, source)):
        root.errors.append(FileError(0, why, field="metric"))
    flags, switches = _flags(keys, request)
    finish = choice(keys.get("running_at_target"), ("end", "finish")) == "finish"
    extendable = keys["extendable"].flag() if "extendable" in keys else False
    image = keys["image"].text() if "image" in keys else ""
    command = keys["command"].text() if "command" in keys else ""
    parameters, fixed = read_parameters(keys.get("parameters"), algorithm, settings, flags)
    grid = _grid(root, parameters, limits) if algorithm == "grid" else None
    trials = read_trials(root, keys.get("trials"), request, limits, grid)
    early = read_early_stopping(keys.get("early_stopping"), source, request.cmd or command, trials.max)
    watch = read_watch(keys.get("watch"))
    nodes = read_nodes(keys.get("nodes"), limits.nodes_per_trial)
    more = read_additions(keys)
    root.check()
    return SearchSpace(
        name=request.space,
        command=request.cmd or command,
        metric=objective.metric,
        goal=objective.goal,
        target=objective.target,
        additional=objective.additional,
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
        max_trials=trials.max,
        parallel=trials.parallel,
        auto=request.auto,
        max_failed=trials.max_failed,
        trial_hours=trials.hours,
        max_hours=trials.max_hours,
        grace_seconds=trials.grace_seconds,
        nodes=nodes,
        parameters=parameters,
        finish_running=finish,
        extendable=extendable,
        volumes=more.volumes,
        env=more.env,
        secrets=more.secrets,
        output_flag=more.output_flag,
        image=request.image or image,
        watch=watch,
    )


def _converted(root: Node, request: SweepRequest) -> tuple[Node, tuple[str, ...]]:
    """Return the file as a space file, and what of another tool's file isn't used."""
    for applies, convert in ((is_wandb, wandb_file.convert), (is_katib, katib_file.convert)):
        if applies(root):
            found = convert(root, request)
            return found.root, tuple(found.notes[:MAX_NOTES])
    return root, ()


def _flags(keys: Mapping[str, Node], request: SweepRequest) -> tuple[FlagStyle, bool]:
    """Return the style, and whether booleans are switches."""
    flags = FlagStyle(request.flags or read_flags(keys.get("flags")))
    switches = choice(keys.get("booleans"), ("value", "switch")) == "switch"
    if switches and not flags.has_switches:
        keys["booleans"].error(f"switch needs flags that start with --; got flags: {flags}")
    return flags, switches


def read_flags(node: Node | None) -> FlagStyle:
    if node and node.raw == "hydra":
        return FlagStyle.HYDRA
    return FlagStyle(choice(node, tuple(FlagStyle)))


def combinations(space: SearchSpace) -> int | None:
    """Return the number of different trials; None if a range has no steps."""
    return _combinations(space.parameters)


def _grid(root: Node, parameters: tuple[Parameter, ...], limits: Limits) -> int:
    found = None if root.errors else _combinations(parameters)
    if found and found > MAX_COMBINATIONS:
        root.error(
            f"the grid has {found:,} combinations; the limit is {MAX_COMBINATIONS:,}. "
            "Use fewer values or larger steps."
        )
    return found or limits.trials  # an invalid grid must not make its counts look invalid


def _combinations(parameters: tuple[Parameter, ...]) -> int | None:
    found = 1
    for count in map(size, parameters):
        if count is None:
            return None
        found = min(found * max(count, 1), ENDLESS)
    return found
