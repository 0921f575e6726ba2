"""The service as a process, and the requests that Katib's controller makes."""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from search import katib_pb2 as pb
from search.service import SERVICE
from search.space import Choice, Dimension, Space

ROOT = Path(__file__).parents[2]
TIMEOUT = 60.0  # seconds of a call, as Katib's
Status = pb.TrialStatus


class Service:
    """A process of the service, and a client of it."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "search", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.process.stdout.readline().split()[-1]}")

    def suggest(self, request: pb.GetSuggestionsRequest) -> list[dict[str, str]]:
        call = self.channel.unary_unary(
            f"/{SERVICE}/GetSuggestions",
            pb.GetSuggestionsRequest.SerializeToString,
            pb.GetSuggestionsReply.FromString,
        )
        rows = call(request, timeout=TIMEOUT).parameter_assignments
        return [{each.name: each.value for each in row.assignments} for row in rows]

    def validate(self, experiment: pb.Experiment) -> None:
        call = self.channel.unary_unary(
            f"/{SERVICE}/ValidateAlgorithmSettings",
            pb.ValidateAlgorithmSettingsRequest.SerializeToString,
            pb.ValidateAlgorithmSettingsReply.FromString,
        )
        call(pb.ValidateAlgorithmSettingsRequest(experiment=experiment), timeout=TIMEOUT)

    def kill(self) -> None:
        self.channel.close()
        self.process.kill()
        self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()


@contextmanager
def running_service() -> Iterator[Service]:
    service = Service()
    try:
        yield service
    finally:
        service.kill()


def experiment(name: str, space: Space, **settings: str) -> pb.Experiment:
    return pb.Experiment(
        name=name,
        spec=pb.ExperimentSpec(
            parameter_specs=pb.ExperimentSpec.ParameterSpecs(
                parameters=[_parameter(each) for each in space.dimensions]
            ),
            objective=pb.ObjectiveSpec(
                type=pb.MAXIMIZE if space.maximize else pb.MINIMIZE, objective_metric_name="loss"
            ),
            algorithm=pb.AlgorithmSpec(
                algorithm_name="sweepbot",
                algorithm_settings=[pb.AlgorithmSetting(name=k, value=v) for k, v in settings.items()],
            ),
        ),
    )


def _parameter(each: Dimension) -> pb.ParameterSpec:
    if isinstance(each, Choice):
        listed = pb.FeasibleSpace(list=each.values)
        return pb.ParameterSpec(name=each.name, parameter_type=pb.CATEGORICAL, feasible_space=listed)
    space = pb.FeasibleSpace(
        min=str(each.low),
        max=str(each.high),
        step="" if each.step is None else str(each.step),
        distribution=pb.LOG_UNIFORM if each.log else pb.UNIFORM,
    )
    kind = pb.INT if each.integer else pb.DOUBLE
    return pb.ParameterSpec(name=each.name, parameter_type=kind, feasible_space=space)


def trial(
    number: int, values: dict[str, str], condition: Status.TrialConditionType, loss: object = None
) -> pb.Trial:
    metrics = (
        [] if loss is None else [pb.Metric(name="acc", value="1"), pb.Metric(name="loss", value=str(loss))]
    )
    return pb.Trial(
        name=f"trial-{number:03}",
        spec=pb.TrialSpec(
            parameter_assignments=pb.TrialSpec.ParameterAssignments(
                assignments=[pb.ParameterAssignment(name=key, value=value) for key, value in values.items()]
            )
        ),
        status=Status(
            start_time=f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z",
            condition=condition,
            observation=pb.Observation(metrics=metrics),
        ),
    )


@dataclass
class Search:
    """An experiment whose trials run in parallel; in each round the oldest ends."""

    experiment: pb.Experiment
    total: int
    parallel: int = 3
    suggested: list[dict[str, str]] = field(default_factory=list)
    ended: list[pb.Trial] = field(default_factory=list)

    def request(self) -> pb.GetSuggestionsRequest | None:
        """Return the next request of Katib; None if all trials were suggested."""
        running = self.suggested[len(self.ended) :]
        n = min(self.parallel - len(running), self.total - len(self.suggested))
        if n <= 0:
            return None
        first = len(self.ended)
        more = [trial(first + at, each, Status.RUNNING) for at, each in enumerate(running)]
        return request(self.experiment, [*reversed(self.ended), *more], n, len(self.suggested) + n)


def request(of: pb.Experiment, trials: Iterable[pb.Trial], n: int, total: int) -> pb.GetSuggestionsRequest:
    return pb.GetSuggestionsRequest(
        experiment=of, trials=trials, current_request_number=n, total_request_number=total
    )
