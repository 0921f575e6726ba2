"""Plan a sweep: from a request, a space, and a commit to all Kubernetes manifests. Pure."""

import re
import shlex
from dataclasses import dataclass, field

from bot.builds.jobs import BuildPlan, Source, build_plan
from bot.config.settings import PlanSettings
from bot.core.errors import UserError
from bot.core.plan import HOME_CLUSTER, SweepPlan
from bot.core.request import SweepRequest
from bot.core.space import Goal, Parameter, SearchSpace
from bot.launch.arguments import arguments, variables
from bot.launch.pods import check_mounts
from bot.launch.queueing import Queueing
from bot.results import run_tags
from bot.spaces.metrics import collector
from k8s.katib.experiment import experiment, training_runtime
from k8s.katib.pod_shape import PodShape, SecretVariables
from k8s.katib.spec import REQUEST_ID, ExperimentSpec, Feasible
from k8s.katib.training import TRIAL_NAME
from k8s.names import label_value
from k8s.objects import OWNER_LABEL, TEAM_LABEL

DIGEST = "sha256:DIGEST-OF-THE-BUILD"  # placeholder in the plan until the image is built


@dataclass(frozen=True, kw_only=True)
class Order:
    """A resolved and checked request, ready to be planned."""

    sweep: str
    owner: str  # Slack user id
    owner_name: str = ""
    request_id: str  # distinguishes this experiment from an older one with the same name
    request: SweepRequest
    source: Source
    space: SearchSpace
    namespace: str = ""  # of its trials; "": K8S_NAMESPACE
    team: str = ""  # that its GPU-hours count for
    profile: str = ""  # name; "": none are configured
    shape: PodShape = field(default_factory=PodShape)  # of its trials' pods
    secrets: tuple[SecretVariables, ...] = ()  # that the space names
    queueing: Queueing = field(default_factory=Queueing)
    cluster: str = ""  # of its trials; "": none are configured
    cluster_reason: str = ""  # why this one; "": there was no choice

    @property
    def nodes(self) -> int:
        return self.request.nodes or 1

    @property
    def results_name(self) -> str:
        return f"{self.source.project}/{self.sweep}"


def plan(order: Order, settings: PlanSettings) -> SweepPlan:
    """Raise UserError if the command can't be wrapped safely or there is nothing to build from."""
    check_command(order.space.command)
    check_mounts(order.space, order.shape)
    source, ready = order.source, order.space.image
    made = BuildPlan(repository="", tag="", builds=(), words="") if ready else build_plan(source, settings)
    image = ready or f"{settings.image_registry}/{made.repository}@{DIGEST}"
    spec = _experiment(order, image, settings)
    return SweepPlan(
        repo_url=source.repository.url,
        commit=source.commit,
        subject=source.subject,
        space=order.space,
        gpus=order.request.gpus,
        nodes=order.nodes,
        profile=order.profile,
        resource=order.shape.resource,
        cluster=order.cluster or HOME_CLUSTER,
        cluster_reason=order.cluster_reason,
        image_repository=made.repository,
        image_tag=made.tag,
        image_by_digest=image,
        recipe=made.words,
        results_name=order.results_name,
        queue=order.queueing.queue,
        priority=order.queueing.priority,
        builds=made.builds,
        experiment=experiment(spec),
        runtime=training_runtime(spec),
    )


def _experiment(order: Order, image: str, settings: PlanSettings) -> ExperimentSpec:
    space, source = order.space, order.source
    return ExperimentSpec(
        name=order.sweep,
        namespace=order.namespace or settings.k8s_namespace,
        sweep=order.sweep,
        labels={OWNER_LABEL: label_value(order.owner)} | ({TEAM_LABEL: order.team} if order.team else {}),
        annotations={
            REQUEST_ID: order.request_id,
            "sweepbot/repository": source.repository.url,
            "sweepbot/branch": order.request.branch,
            "sweepbot/commit": source.commit,
            "sweepbot/space": order.request.space,
        },
        metric=space.metric,
        maximize=space.goal is Goal.MAXIMIZE,
        target=space.target,
        algorithm=space.algorithm,
        settings=space.settings,
        parallel=space.first_parallel,
        max_trials=space.max_trials,
        max_failed=space.max_failed,
        trial_hours=space.trial_hours,
        grace_seconds=space.grace_seconds,
        parameters=tuple(_feasible(p) for p in space.parameters),
        command=space.command.replace("$", "$$"),
        arguments=arguments(space),
        collector=collector(space),
        additional=space.additional,
        early_stopping=space.early_stopping,
        strategies=space.strategies if space.strategy else {},
        image=image,
        gpus=order.request.gpus,
        nodes=order.nodes,
        env=_environment(order, settings),
        secrets=(*_secrets(settings), *order.secrets),
        directory=f"{space.output_dir}/{TRIAL_NAME}" if space.output_dir else "",
        pull_secret=settings.image_registry_secret,
        shape=order.shape,
        job_labels=order.queueing.labels,
    )


def _environment(order: Order, settings: PlanSettings) -> dict[str, str]:
    tags = run_tags.planned(
        sweep=order.sweep,
        owner=order.owner_name,
        owner_id=order.owner,
        team=order.team,
        repository=order.source.repository.url,
        branch=order.request.branch,
        commit=order.source.commit,
        cluster=order.cluster,
    )
    return {
        "MLFLOW_TRACKING_URI": settings.mlflow_tracking_uri,
        "MLFLOW_EXPERIMENT_NAME": order.results_name,
        run_tags.VARIABLE: run_tags.encode(tags),
        "PYTHONUNBUFFERED": "1",  # else a crash loses the last log lines
        **{name: value.replace("$", "$$") for name, value in order.space.env.items()},
        **variables(order.space),
    }


def _secrets(settings: PlanSettings) -> tuple[SecretVariables, ...]:
    if not settings.mlflow_secret:
        return ()
    return (SecretVariables(name=settings.mlflow_secret, keys=run_tags.LOGIN_VARIABLES, optional=True),)


def _feasible(parameter: Parameter) -> Feasible:
    if parameter.values:
        return Feasible(name=parameter.name, type="categorical", space={"list": list(parameter.values)})
    space = {"min": _number(parameter.min), "max": _number(parameter.max)}
    if parameter.step is not None:
        space["step"] = _number(parameter.step)
    if parameter.log:
        space["distribution"] = "logUniform"
    return Feasible(name=parameter.name, type="int" if parameter.integer else "double", space=space)


def _number(value: float | None) -> str:
    return repr(value)


def check_command(command: str) -> None:
    """Raise UserError unless flags can be appended to the command, inside `sh -c` and Katib's template."""
    try:
        shlex.split(command)
    except ValueError:
        raise UserError(f"command has an unclosed quote: `{command}`.") from None
    if re.search(r"(^|\s)#", command) or "\n" in command:
        raise UserError(
            f"command must be one line without a comment, because flags are appended to it; got `{command}`."
        )
    if "${trial" in command:
        raise UserError(
            f"command must not use Katib's placeholders; got `{command}`. "
            "Parameters are appended as --name=value."
        )


def image_with(plan_: SweepPlan, digest: str) -> str:
    return plan_.image_by_digest.replace(DIGEST, digest)
