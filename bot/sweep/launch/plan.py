"""Plan a sweep's builds and Katib experiment, with labels, variables, and appended flags; refuse commands
that flags can't follow, and asha or median without live values. Pure.
"""

import json
import re
import shlex
from dataclasses import dataclass, field, replace

from bot.core.budget import Budget
from bot.core.errors import UserError
from bot.core.flags import FlagStyle, flag, in_order, variable, words
from bot.core.plan import HOME_CLUSTER, BranchImage, SweepPlan
from bot.core.request import SweepRequest
from bot.core.space import (
    BRANCH,
    SEARCH_SERVICE,
    TENSORBOARD_PARAMETER,
    Goal,
    MetricSource,
    Pairs,
    Parameter,
    SearchSpace,
)
from bot.platform.config.settings import PlanSettings
from bot.sweep.builds.jobs import BuildPlan, Source, build_plan
from bot.sweep.launch.pods import check_mounts
from bot.sweep.launch.queueing import Queueing
from bot.sweep.results import run_tags
from bot.sweep.spaces.metrics import collector
from k8s.katib.experiment import experiment, training_runtime
from k8s.katib.pod_shape import PodShape, SecretVariables
from k8s.katib.reader import Reader
from k8s.katib.spec import INACTIVE, REQUEST_ID, STOPPED_STRATEGIES, ExperimentSpec, Feasible
from k8s.katib.training import TENSORBOARD_DIR, TRIAL_NAME
from k8s.objects import OWNER_LABEL, TEAM_LABEL, label_value

# Text of a command in which ; & and | don't end a program.
NO_OPERATOR = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|`[^`]*`|\\.|\$\(.*?\)|[<>]&|&>|>\|""")
AFTER = re.compile(r"\s*((tee|echo|true|:|cat|exit|grep|head|sleep|tail|wait)(\s|$)|$)")  # the training
OWN_SHELL = re.compile(r"(^|[\s/])(ba|da|z)?sh(\s+-\w+)*\s+-\w*c\s+_\s*$")  # what follows isn't its script's
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
    others: tuple[Source, ...] = ()  # of the branches that it is compared with
    space: SearchSpace
    namespace: str = ""  # of its trials; "": K8S_NAMESPACE
    team: str = ""  # that its GPU-hours count for
    profile: str = ""  # name; "": none are configured
    shape: PodShape = field(default_factory=PodShape)  # of its trials' pods
    secrets: tuple[SecretVariables, ...] = ()  # that the space names
    budget: Budget | None = None
    price: float = 0.0  # of one GPU-hour, the highest that it can be; 0: none is configured
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
    check_command(order.space)
    check_mounts(order.space, order.shape)
    check_live_values(order.space, order.source, settings)
    source, ready = order.source, order.space.image
    made = BuildPlan(repository="", tag="", builds=(), words="") if ready else build_plan(source, settings)
    branches = _branches(order, settings)
    # Katib puts a label with its digest there; nodes pull by the digest.
    which = f":${{trialParameters.{BRANCH}}}" if branches else f"@{DIGEST}"
    image = ready or f"{settings.registry_host}/{made.repository}{which}"
    spec = _experiment(order, image, settings)
    runtime = training_runtime(spec)
    if branches and runtime:
        raise UserError(
            f"branch={order.request.branch} can't be compared by TrainJobs, which run one image. Name one "
            "branch.",
            field=BRANCH,
        )
    return SweepPlan(
        repo_url=source.repository.url,
        commit=source.commit,
        subject=source.subject,
        space=replace(order.space, notes=(*order.space.notes, *made.notes)),
        gpus=order.request.gpus,
        nodes=order.nodes,
        budget=order.budget,
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
        runtime=runtime,
        branches=branches,
    )


def _branches(order: Order, settings: PlanSettings) -> tuple[BranchImage, ...]:
    """Return the branches to compare; none if there is one. Raises UserError as `plan` does."""
    if order.space.pairs is None:
        return ()
    found = []
    for name, each, label in zip(
        order.request.branches, (order.source, *order.others), order.space.pairs.branches, strict=True
    ):
        check_live_values(order.space, each, settings)
        made = build_plan(each, settings)
        found.append(
            BranchImage(
                label=label,
                branch=name,
                commit=each.commit,
                subject=each.subject,
                tag=made.tag,
                recipe=made.words,
                builds=made.builds,
            )
        )
    return tuple(found)


def _experiment(order: Order, image: str, settings: PlanSettings) -> ExperimentSpec:
    space, source, secrets = order.space, order.source, order.secrets
    reader_image, login = settings.metrics_reader_image, settings.mlflow_secret
    reader = Reader(image=reader_image, katib=settings.katib_db_manager) if reader_image else None
    if login:
        secrets = (SecretVariables(name=login, keys=run_tags.LOGIN_VARIABLES, optional=True), *secrets)
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
        settings=_settings(space),
        parallel=space.first_parallel,
        max_trials=space.max_trials,
        max_failed=space.max_failed,
        trial_hours=space.trial_hours,
        grace_seconds=space.grace_seconds,
        parameters=tuple(_feasible(p) for p in space.parameters),
        command=space.command.replace("$", "$$"),
        arguments=arguments(space),
        collector=collector(space, reader),
        additional=space.additional,
        early_stopping=space.early_stopping,
        strategies=_strategies(space),
        image=image,
        gpus=order.request.gpus,
        nodes=order.nodes,
        env=_environment(order, settings),
        secrets=secrets,
        directory=f"{space.output_dir}/{TRIAL_NAME}" if space.output_dir else "",
        pull_secret=settings.image_registry_secret,
        shape=order.shape,
        job_labels=order.queueing.labels,
    )


def _settings(space: SearchSpace) -> dict[str, str]:
    """Return the algorithm's settings; those of the search service beside its own are JSON."""
    own = {
        "past": space.warm_start.points if space.warm_start else (),
        "pairs": _pairs(space.pairs) if space.pairs else {},
        "conditions": {each.name: each.when for each in space.parameters if each.when},
        "objectives": space.goals,
    }
    return space.settings | {name: json.dumps(value) for name, value in own.items() if value}


def _pairs(pairs: Pairs) -> dict[str, object]:
    return {"branch": BRANCH, "seed": pairs.seed, "settings": pairs.settings, "finals": pairs.finals}


def _strategies(space: SearchSpace) -> dict[str, str]:
    """Return what counts of each metric; Katib's own defaults are those of the first objective."""
    named = space.strategies if space.strategy or space.goals else {}
    return named | STOPPED_STRATEGIES if space.algorithm == SEARCH_SERVICE else named


def _environment(order: Order, settings: PlanSettings) -> dict[str, str]:
    tags = run_tags.planned(
        sweep=order.sweep,
        owner=order.owner_name,
        owner_id=order.owner,
        team=order.team,
        repository=order.source.repository.url,
        branch=order.request.branch,
        commit="" if order.others else order.source.commit,  # the trial's parameter says which
        cluster=order.cluster,
    )
    return {
        "MLFLOW_TRACKING_URI": settings.mlflow_tracking_uri,
        "MLFLOW_EXPERIMENT_NAME": order.results_name,
        "MLFLOW_DISABLE_TELEMETRY": "true",
        run_tags.VARIABLE: run_tags.encode(tags),
        "PYTHONUNBUFFERED": "1",  # else a crash loses the last log lines
        **{name: value.replace("$", "$$") for name, value in order.space.env.items()},
        **variables(order.space),
    }


def _feasible(parameter: Parameter) -> Feasible:
    if parameter.values:
        return Feasible(name=parameter.name, type="categorical", space={"list": list(parameter.values)})
    space = {"min": repr(parameter.min), "max": repr(parameter.max)}
    if parameter.step is not None:
        space["step"] = repr(parameter.step)
    if parameter.log:
        space["distribution"] = "logUniform"
    return Feasible(name=parameter.name, type="int" if parameter.integer else "double", space=space)


def check_command(space: SearchSpace) -> None:
    """Raise UserError unless flags can be appended to the command, inside `sh -c` and Katib's template."""
    command = space.command
    try:
        shlex.split(command)
    except ValueError:
        raise UserError(f"command has an unclosed quote: `{command}`.") from None
    if re.search(r"(^|\s)#", command) or "\n" in command:
        raise UserError(
            f"command must be one line without a comment, because flags are appended to it; got `{command}`."
        )
    *before, last = re.split("[;&|]", NO_OPERATOR.sub("_", command))
    is_lost = OWN_SHELL.search(last) and not re.search(r"\$\{?0", command)  # `"$0" "$@"` passes on all, too
    if is_lost and space.flags is not FlagStyle.ENV:
        raise UserError(
            f"command must pass on its flags, which are appended to its end; got `{command}`. End it with "
            """`"$@"' _`, for example `bash -c 'python train.py "$@"' _`."""
        )
    if before and space.flags is not FlagStyle.ENV and AFTER.match(last):
        raise UserError(
            f"command must end with the training, because flags are appended to its end; got `{command}`. "
            "Remove what follows the training; the log is kept without `tee`."
        )
    if "${trial" in command:
        raise UserError(
            f"command must not use Katib's placeholders; got `{command}`. "
            "Parameters are appended as --name=value."
        )


def check_live_values(space: SearchSpace, source: Source, settings: PlanSettings) -> None:
    """Raise UserError if no value can reach early stopping while a trial runs.

    Without the reader, and with no output to read, they come from MLflow. Only a lock lists all packages.
    """
    lock, own = source.files.get("uv.lock", ""), source.repository.dockerfile or "Dockerfile"
    has_reader = space.source is MetricSource.TENSORBOARD and settings.metrics_reader_image
    if space.stopping is None or space.source is MetricSource.STDOUT or has_reader:
        return
    if not lock or own in source.files or 'name = "mlflow' in lock:
        return
    raise UserError(
        f"early_stopping: {space.stopping.name} needs values while trials run, which come from MLflow here, "
        "but `uv.lock` has no mlflow. *Fix:* Add it and log "
        f'`mlflow.log_metric("{space.metric}", value, step=step)`, or set `metrics: stdout` and print '
        f"`{space.metric}=0.1`, or remove `early_stopping:`. An admin can set METRICS_READER_IMAGE: then "
        "TensorBoard files are enough."
    )


def image_with(plan_: SweepPlan, digest: str) -> str:
    return plan_.image_by_digest.replace(DIGEST, digest)


def arguments(space: SearchSpace) -> str:
    """Return the flags as shell text: `$` doubled, except in Katib's placeholders."""
    own = {
        name: [] if space.is_switch(name) and value != "true" else _quoted(space, name, value)
        for name, value in space.fixed.items()
    }
    for parameter in space.passed:
        placeholder = f"${{trialParameters.{parameter.name}}}"
        marked = words(space.flags, parameter.name, placeholder)
        if space.is_switch(parameter.name):
            given = [f"$$([ {placeholder} = true ] && echo {flag(space.flags, parameter.name)})"]
        elif parameter.when:
            given = [f"$$([ {placeholder} = {INACTIVE} ] || echo '{' '.join(marked)}')"]
        else:
            given = [shlex.quote(word) for word in marked]
        own[parameter.name] = given
    texts = [text for name in in_order(own) for text in own[name]]
    if space.source is MetricSource.TENSORBOARD:
        texts += _quoted(space, TENSORBOARD_PARAMETER, TENSORBOARD_DIR)
    if space.output_dir:
        path = f"{space.output_dir}/{TRIAL_NAME}"
        texts += [shlex.quote(word) for word in words(space.flags, space.output_flag, path)]
    return " ".join(texts)


def _quoted(space: SearchSpace, name: str, value: str) -> list[str]:
    if space.is_switch(name):
        return [flag(space.flags, name)]
    return [shlex.quote(word).replace("$", "$$") for word in words(space.flags, name, value)]


def variables(space: SearchSpace) -> dict[str, str]:
    """Return the environment variables of the parameters: Kubernetes expands `$(NAME)` in them."""
    if space.flags is not FlagStyle.ENV:
        return {}
    found = {name: value.replace("$", "$$") for name, value in space.fixed.items()}
    found |= {each.name: f"${{trialParameters.{each.name}}}" for each in space.passed}
    if space.source is MetricSource.TENSORBOARD:
        found[TENSORBOARD_PARAMETER] = TENSORBOARD_DIR
    if space.output_dir:
        found[space.output_flag] = f"{space.output_dir}/{TRIAL_NAME}"
    return {variable(name): value for name, value in found.items()}
