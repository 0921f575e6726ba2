"""Sweepbot's search service as Katib runs it: a process of its own, called by gRPC with Katib's messages.

Katib makes a Deployment for each experiment. The service keeps no state, so one process serves all here; it
starts with the first experiment that needs it, and again whenever it ends, as a kubelet restarts a container.
Source of the calls: kubeflow/katib, pkg/controller.v1beta1/suggestion/suggestionclient/suggestionclient.go.
"""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from local.katib.algorithm_validation import settings_of
from local.katib.progress import chosen_value
from local.katib.status import is_true
from local.kubernetes.apiserver.kinds import Object, suffix
from search import katib_pb2 as pb

Reply = TypeVar("Reply", bound=Message)

NAME = "sweepbot"
SERVICE = "/api.v1.beta1.Suggestion"
TIMEOUT = 60.0  # seconds of a call
RESTART = 0.5  # seconds until a process that has ended is started again
DISTRIBUTIONS = {"uniform": pb.UNIFORM, "logUniform": pb.LOG_UNIFORM}
CONDITIONS = {
    "Created": pb.TrialStatus.CREATED,
    "Running": pb.TrialStatus.RUNNING,
    "Succeeded": pb.TrialStatus.SUCCEEDED,
    "Killed": pb.TrialStatus.KILLED,
    "Failed": pb.TrialStatus.FAILED,
    "EarlyStopped": pb.TrialStatus.EARLYSTOPPED,
}


class ServiceError(Exception):
    """A gRPC error of a service."""


class SearchService:
    """`on_ready` is called whenever the process serves. Calls block, as those of Katib's one worker do."""

    def __init__(self, on_ready: Callable[[], None]) -> None:
        self._on_ready = on_ready
        self._wanted = asyncio.Event()
        self._channel: grpc.Channel | None = None
        self.process: asyncio.subprocess.Process | None = None
        self.answered = 0  # calls of GetSuggestions

    async def run(self) -> None:
        """Keep the process running from the first `is_ready` on, until cancelled."""
        await self._wanted.wait()
        while True:
            command = (sys.executable, "-m", "search", "127.0.0.1:0")
            root = Path(__file__).parents[2]
            self.process = await asyncio.create_subprocess_exec(
                *command, cwd=root, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
            )
            try:
                if self.process.stdout and (line := await self.process.stdout.readline()):
                    self._channel = grpc.insecure_channel(f"127.0.0.1:{line.split()[-1].decode()}")
                    self._on_ready()
                await self.process.wait()
            finally:
                if self._channel:
                    self._channel.close()
                self._channel = None
                if self.process.returncode is None:
                    self.process.kill()
                    await self.process.wait()
            await asyncio.sleep(RESTART)

    def is_ready(self) -> bool:
        """Return whether the process serves; the first call starts it."""
        self._wanted.set()
        return self._channel is not None

    def objection(self, experiment: Object) -> str | None:
        """Return why the service rejects the experiment; None if it doesn't. Raises ServiceError."""
        request = pb.ValidateAlgorithmSettingsRequest(experiment=_experiment(experiment))
        try:
            self._call("ValidateAlgorithmSettings", request, pb.ValidateAlgorithmSettingsReply)
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNKNOWN):
                return str(error.details())
            raise ServiceError(_text(error)) from error
        return None

    def next(self, suggestion: Object, experiment: Object, trials: list[Object], count: int) -> list[Object]:
        """Return this many new assignments. Raises ServiceError."""
        request = pb.GetSuggestionsRequest(
            experiment=_experiment(experiment),
            trials=[_trial(each) for each in trials if _is_passed_on(each)],
            current_request_number=count,
            total_request_number=suggestion["spec"]["requests"],
        )
        try:
            reply = self._call("GetSuggestions", request, pb.GetSuggestionsReply)
        except grpc.RpcError as error:
            raise ServiceError(_text(error)) from error
        rows = reply.parameter_assignments
        if len(rows) != count:
            raise ServiceError("The response contains unexpected trials")
        self.answered += 1
        name = experiment["metadata"]["name"]
        return [
            assignment(f"{name}-{suffix(8)}", {each.name: each.value for each in row.assignments})
            for row in rows
        ]

    def _call(self, method: str, request: Message, reply: type[Reply]) -> Reply:
        if self._channel is None:
            raise ServiceError("rpc error: code = Unavailable desc = connection refused")
        call = self._channel.unary_unary(
            f"{SERVICE}/{method}", type(request).SerializeToString, reply.FromString
        )
        answer: Reply = call(request, timeout=TIMEOUT)
        return answer


def assignment(trial: str, values: dict[str, str]) -> Object:
    assignments = [{"name": name, "value": value} for name, value in values.items()]
    return {"name": trial, "parameterAssignments": assignments}


def _text(error: grpc.RpcError) -> str:
    return f"rpc error: code = {error.code().name.title()} desc = {error.details()}"


def _experiment(experiment: Object) -> pb.Experiment:
    spec = experiment["spec"]
    objective = spec["objective"]
    return pb.Experiment(
        name=experiment["metadata"]["name"],
        spec=pb.ExperimentSpec(
            parameter_specs=pb.ExperimentSpec.ParameterSpecs(
                parameters=[_parameter(each) for each in spec["parameters"]]
            ),
            objective=pb.ObjectiveSpec(
                type=pb.MAXIMIZE if objective["type"] == "maximize" else pb.MINIMIZE,
                objective_metric_name=objective["objectiveMetricName"],
            ),
            algorithm=pb.AlgorithmSpec(
                algorithm_name=spec["algorithm"]["algorithmName"],
                algorithm_settings=[
                    pb.AlgorithmSetting(name=name, value=value) for name, value in settings_of(spec).items()
                ],
            ),
        ),
    )


def _parameter(parameter: Object) -> pb.ParameterSpec:
    space = parameter["feasibleSpace"]
    return pb.ParameterSpec(
        name=parameter["name"],
        parameter_type=pb.ParameterType.Value(parameter["parameterType"].upper()),
        feasible_space=pb.FeasibleSpace(
            **{key: space[key] for key in ("min", "max", "step", "list") if key in space},
            distribution=DISTRIBUTIONS[space["distribution"]],
        ),
    )


def _is_passed_on(trial: Object) -> bool:
    """Katib leaves out trials without metrics, and those stopped early whose values it doesn't have yet."""
    if is_true(trial, "EarlyStopped"):
        return "observation" in trial.get("status", {})
    return not is_true(trial, "MetricsUnavailable")


def _trial(trial: Object) -> pb.Trial:
    """Return Katib's message. Only the last condition in the list counts, also if its status is False."""
    status = trial.get("status", {})
    conditions = status.get("conditions", [])
    strategies = {one["name"]: one["value"] for one in trial["spec"]["objective"]["metricStrategies"]}
    observed = status.get("observation", {}).get("metrics", [])
    return pb.Trial(
        name=trial["metadata"]["name"],
        spec=pb.TrialSpec(
            parameter_assignments=pb.TrialSpec.ParameterAssignments(
                assignments=[pb.ParameterAssignment(**each) for each in trial["spec"]["parameterAssignments"]]
            )
        ),
        status=pb.TrialStatus(
            start_time=status.get("startTime", ""),
            condition=CONDITIONS.get(conditions[-1]["type"], pb.TrialStatus.UNKNOWN) if conditions else None,
            observation=pb.Observation(
                metrics=[
                    pb.Metric(name=each["name"], value=chosen_value(each, strategies.get(each["name"], "")))
                    for each in observed
                ]
            ),
        ),
    )
