"""Katib's Suggestion service, v1beta1, with `ask` behind it: which parameters and settings of an experiment
it reads, with their defaults, and why it refuses some. Stateless: each request brings the whole search.

Katib repeats a call that failed after up to 17 minutes, and one of its threads makes the calls for all
experiments. So the service prefers an answer to an error, and bounds the time of a call.
Source: kubeflow/katib, pkg/controller.v1beta1/suggestion.
"""

import json
import logging
import math
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from search import katib_pb2 as pb
from search.ask import Method, ask, derived_seed, grid_size
from search.pairs import Pairs, paired
from search.space import INACTIVE, LARGEST, Choice, Condition, Dimension, Finished, Point, Range, Space, Value

SERVICE = "api.v1.beta1.Suggestion"
PROBED = "manager.v1beta1.Suggestion"  # the name in the probes that Katib's controller gives the container
MAX_MESSAGE = 16 * 2**20  # bytes of a request: 60,000 trials of 6 parameters; etcd has room for 5,000
MAX_JSON = 20_000  # characters of a setting, which each Suggestion holds, too
MAX_POINTS = 5000  # of one call, likewise
MAX_OTHERS = 2  # objectives besides the first: with more, hardly a trial is worse than another in all
THREADS = 8  # so that the probes are answered during a call

# Metrics of a trial that Sweepbot stopped: its last value, and the step. They aren't the objective, so Katib
# takes such a value neither for the best one nor for the goal.
STOPPED_VALUE, STOPPED_STEP = "sweepbot-stopped-value", "sweepbot-stopped-step"

_ENDED = {pb.TrialStatus.SUCCEEDED, pb.TrialStatus.EARLYSTOPPED}
_RUNNING = {pb.TrialStatus.CREATED, pb.TrialStatus.RUNNING}
_LOG = {pb.LOG_UNIFORM, pb.LOG_NORMAL}

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the algorithm, as `algorithmSettings` has them."""

    method: Method = Method.TPE
    random_state: int = 0
    startup: int = 6
    past: tuple[Mapping[str, str], ...] = ()
    conditions: Mapping[str, Condition] = field(default_factory=dict)  # by parameter
    objectives: Mapping[str, bool] = field(default_factory=dict)  # besides the first: whether maximized
    pairs: Pairs | None = None  # None: no comparison of branches


SETTINGS = ("conditions", "method", "n_startup_trials", "objectives", "pairs", "past", "random_state")


def read_settings(spec: pb.AlgorithmSpec) -> Settings:
    """Raises ValueError."""
    given = {each.name: each.value for each in spec.algorithm_settings}
    if unknown := given.keys() - {*SETTINGS}:
        raise ValueError(f"unknown setting {min(unknown)}; known: {', '.join(SETTINGS)}")
    if (method := given.get("method", Method.TPE)) not in {*Method}:
        raise ValueError(f'method must be one of {", ".join(Method)}; got "{method}"')
    return Settings(
        method=Method(method),
        random_state=_whole(given, "random_state", 0),
        startup=_whole(given, "n_startup_trials", 6),
        past=_read_past(given.get("past", "[]")),
        conditions=_read_conditions(given.get("conditions", "{}")),
        objectives=_read_objectives(given.get("objectives", "{}")),
        pairs=_read_pairs(given["pairs"]) if "pairs" in given else None,
    )


def _read_pairs(text: str) -> Pairs:
    """Return `{"branch": "branch", "seed": "seed", "settings": 12, "finals": 3}`. Raises ValueError."""
    found = _json(text)
    try:
        pairs = Pairs(**found)
        counts = [pairs.settings, pairs.finals]
    except TypeError:
        counts = [0]
    if not all(isinstance(each, int) and 0 < each <= MAX_POINTS for each in counts):
        raise ValueError("pairs must be a JSON object of branch, seed, settings, and finals")
    return pairs


def _read_objectives(text: str) -> dict[str, bool]:
    """Return `{"latency": "minimize"}` as whether each metric is maximized. Raises ValueError."""
    found = _json(text)
    if (
        not isinstance(found, dict)
        or len(found) > MAX_OTHERS
        or not {"minimize", "maximize"} >= {*map(str, found.values())}
    ):
        raise ValueError(f"objectives must be a JSON object of up to {MAX_OTHERS} goals by metric")
    return {name: goal == "maximize" for name, goal in found.items()}


def _read_conditions(text: str) -> dict[str, Condition]:
    """Return `{"momentum": ["optimizer", "sgd"]}` as a condition by parameter. Raises ValueError."""
    found = _json(text)
    if not isinstance(found, dict) or not all(_is_words(each) for each in found.values()):
        raise ValueError(f"conditions must be a JSON object of lists of texts, up to {MAX_JSON} characters")
    return {name: Condition(parameter=of, values=tuple(words)) for name, (of, *words) in found.items()}


def _is_words(found: object) -> bool:
    return isinstance(found, list) and len(found) > 1 and all(isinstance(each, str) for each in found)


def _json(text: str) -> Any:
    try:
        return json.loads(text) if len(text) <= MAX_JSON else None
    except (ValueError, RecursionError):
        return None


def _read_past(text: str) -> tuple[Mapping[str, str], ...]:
    """Return the points of an earlier search, as values by parameter. Raises ValueError."""
    rows = _json(text)
    if not isinstance(rows, list) or not all(_is_texts(row) for row in rows):
        raise ValueError(f"past must be a JSON list of objects of texts, up to {MAX_JSON} characters")
    return tuple(rows)


def _is_texts(row: object) -> bool:
    return isinstance(row, dict) and all(isinstance(value, str) for value in row.values())


def _whole(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        raise ValueError(f'{name} must be a whole number from 0; got "{text[:40]}"')
    return int(text)


def read_space(spec: pb.ExperimentSpec, settings: Settings) -> Space:
    """Raises ValueError if a parameter has no value, or isn't of a known type."""
    conditions = settings.conditions
    dimensions = tuple(
        replace(_dimension(each), when=conditions.get(each.name)) for each in spec.parameter_specs.parameters
    )
    others = tuple(settings.objectives.values())
    return Space(dimensions=dimensions, maximize=spec.objective.type == pb.MAXIMIZE, others=others)


def _dimension(spec: pb.ParameterSpec) -> Dimension:
    space = spec.feasible_space
    if spec.parameter_type in (pb.DISCRETE, pb.CATEGORICAL):
        return Choice(name=spec.name, values=tuple(dict.fromkeys(space.list)))
    if spec.parameter_type not in (pb.DOUBLE, pb.INT):
        raise ValueError(f"{spec.name}: unknown type of parameter")
    integer = spec.parameter_type == pb.INT
    low, high = (_number(spec.name, text, integer=integer) for text in (space.min, space.max))
    return Range(
        name=spec.name,
        low=low,
        high=high,
        step=_number(spec.name, space.step, integer=integer) if space.step else None,
        log=space.distribution in _LOG,
        integer=integer,
    )


def _number(name: str, text: str, *, integer: bool) -> float | int:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f'{name}: "{text[:40]}" is not a number') from None
    if not integer:
        return number
    if abs(number) > LARGEST or not number.is_integer():
        raise ValueError(f'{name}: "{text[:40]}" is not a whole number up to 2^53')
    return int(number)


def read_trials(
    space: Space, metrics: Sequence[str], trials: Sequence[pb.Trial]
) -> tuple[list[Finished], list[Point]]:
    """Return the results and the running points in order of their start; Katib's list has no order.

    Trials without a finite value of each metric, and those whose values aren't in the space, teach nothing.
    A stopped trial can have any condition: Katib passes on the last of a list, whatever its status.
    """
    finished, running = [], []
    for trial in sorted(trials, key=lambda each: (each.status.start_time, each.name)):
        point = space.read({each.name: each.value for each in trial.spec.parameter_assignments.assignments})
        if point is None:
            continue
        if math.isfinite(step := _observed(trial, STOPPED_STEP)):
            value = _observed(trial, STOPPED_VALUE)
            finished.append(Finished(point=point, value=value, stopped_at=int(step)))
        elif trial.status.condition in _RUNNING:
            running.append(point)
        elif trial.status.condition in _ENDED:
            value, *others = (_observed(trial, each) for each in metrics)
            if all(map(math.isfinite, (value, *others))):
                finished.append(Finished(point=point, value=value, others=tuple(others)))
    return finished, running


def _observed(trial: pb.Trial, metric: str) -> float:
    text = next((each.value for each in trial.status.observation.metrics if each.name == metric), "")
    try:
        return float(text)
    except ValueError:  # "unavailable"
        return math.nan


def suggestions(request: pb.GetSuggestionsRequest) -> pb.GetSuggestionsReply:
    """Return as many assignments as the request wants. Raises ValueError if its space has no points."""
    experiment, n = request.experiment, request.current_request_number
    if n > MAX_POINTS:
        raise ValueError(f"{n} trials in one request; at most {MAX_POINTS} fit into Katib's Suggestion")
    settings = read_settings(experiment.spec.algorithm)
    space = read_space(experiment.spec, settings)
    metrics = (experiment.spec.objective.objective_metric_name, *settings.objectives)
    finished, running = read_trials(space, metrics, request.trials)
    first = max(request.total_request_number - n, 0)
    seed = derived_seed(experiment.name, settings.random_state)
    if settings.pairs:
        points = paired(space, settings.pairs, finished, running, range(first, first + n), seed)
        return pb.GetSuggestionsReply(parameter_assignments=[_assignments(space, each) for each in points])
    points = ask(
        space,
        finished,
        running,
        n,
        seed,
        method=settings.method,
        first=first,
        startup=settings.startup,
        past=[point for each in settings.past if (point := space.read_known(each))],
    )
    return pb.GetSuggestionsReply(parameter_assignments=[_assignments(space, point) for point in points])


def _assignments(space: Space, point: Point) -> pb.GetSuggestionsReply.ParameterAssignments:
    texts = {each.name: _written(point.get(each.name, INACTIVE)) for each in space.dimensions}
    values = [pb.ParameterAssignment(name=name, value=text) for name, text in texts.items()]
    return pb.GetSuggestionsReply.ParameterAssignments(assignments=values)


def _written(value: Value) -> str:
    return value if isinstance(value, str) else repr(value)


def validate(experiment: pb.Experiment) -> None:
    """Raises ValueError if the search can't be made."""
    settings = read_settings(experiment.spec.algorithm)
    space = read_space(experiment.spec, settings)
    if settings.pairs:
        paired(space, settings.pairs, [], [], [0], 0)
    if settings.method is Method.GRID and space.is_conditional:
        raise ValueError("grid has no conditions; use tpe")
    if settings.method is Method.GRID:
        grid_size(space)
    if settings.method is Method.CMAES and sum(each.top > each.low for each in space.ranges) < 2:
        raise ValueError("cmaes needs at least two ranges of numbers; use tpe")


class SuggestionService:
    """The calls of the service. One is computed at a time: memory and CPU are those of one."""

    def __init__(self) -> None:
        self._one = threading.Lock()

    def get_suggestions(
        self, request: pb.GetSuggestionsRequest, context: grpc.ServicerContext
    ) -> pb.GetSuggestionsReply:
        try:
            with self._one:
                return suggestions(request)
        except ValueError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise AssertionError from error  # abort has raised

    def validate_algorithm_settings(
        self, request: pb.ValidateAlgorithmSettingsRequest, context: grpc.ServicerContext
    ) -> pb.ValidateAlgorithmSettingsReply:
        try:
            validate(request.experiment)
        except ValueError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return pb.ValidateAlgorithmSettingsReply()


def server(address: str) -> tuple[grpc.Server, int]:
    """Return a server that isn't started, and its port. Raises RuntimeError if the address is in use."""
    service, options = SuggestionService(), [("grpc.max_receive_message_length", MAX_MESSAGE)]
    made = grpc.server(ThreadPoolExecutor(THREADS), options=[*options, ("grpc.so_reuseport", 0)])
    calls = {
        "GetSuggestions": grpc.unary_unary_rpc_method_handler(
            service.get_suggestions,
            pb.GetSuggestionsRequest.FromString,
            pb.GetSuggestionsReply.SerializeToString,
        ),
        "ValidateAlgorithmSettings": grpc.unary_unary_rpc_method_handler(
            service.validate_algorithm_settings,
            pb.ValidateAlgorithmSettingsRequest.FromString,
            pb.ValidateAlgorithmSettingsReply.SerializeToString,
        ),
    }
    made.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, calls),))
    checks = health.HealthServicer()
    for name in ("", PROBED, SERVICE):
        checks.set(name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(checks, made)
    return made, made.add_insecure_port(address)


def warm_up() -> None:
    """Make a call of each method, so that the first request imports nothing: that takes up to a second."""
    space = Space(dimensions=(Range(name="x", low=0.0, high=1.0), Range(name="y", low=0.0, high=1.0)))
    for method in (Method.SOBOL, Method.TPE, Method.CMAES):
        points = ask(space, [], [], 6, 0, method=Method.SOBOL)
        ask(space, [Finished(point=each, value=0.0) for each in points], [], 1, 0, method=method)
