"""The commands `sweepbot plan` and `sweepbot space`, which need no services except git."""

import argparse
import asyncio
import os
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from bot.config.policy import Config, read_config, repository
from bot.config.repositories import Repository, bare
from bot.config.settings import PlanSettings
from bot.config.yaml_reader import MAX_CHARACTERS
from bot.core.errors import UserError
from bot.core.plan import SweepPlan
from bot.core.record import SweepRecord
from bot.core.request import Requester, SweepRequest
from bot.core.space import SearchSpace
from bot.form.plan_text import gate_comment, plan_text
from bot.launch.cluster_choice import placed_unmeasured
from bot.launch.command_line import parse, parse_options, read_values
from bot.launch.plan import Order, check_command, plan
from bot.launch.pods import check_mounts, nodes_of, pods_of, with_output
from bot.launch.resolve import look_up
from bot.repos.git import Git, GitUnavailableError, logins
from bot.spaces.describe import as_yaml, explain
from bot.spaces.space import parse_space
from bot.storage import sweep_configmap
from k8s.katib.manifest import gated
from k8s.katib.multi_node import service
from k8s.objects import Manifest


def run_space(arguments: argparse.Namespace) -> int:
    config = _config_for("https://example.invalid/x.git", os.environ.get("SWEEPBOT_CONFIG"))
    options = {"branch": "main", "space": arguments.file.stem.lower(), **parse_options(arguments.options)}
    values, errors = read_values(options, config)
    if errors:
        raise UserError("\n".join(errors.values()))
    try:
        with arguments.file.open(errors="replace") as file:
            text = file.read(MAX_CHARACTERS + 1)
    except OSError as error:
        raise UserError(f"{arguments.file} can't be read ({error.strerror}).") from None
    request = SweepRequest(**values)
    space = parse_space(text, str(arguments.file), request, config.limits)
    request = replace(request, nodes=nodes_of(request, space, config))
    check_command(space.command)
    if "SWEEPBOT_CONFIG" in os.environ:
        space = with_output(space, "SWEEP", config)
        pods = pods_of(request, space, "", config)
        check_mounts(space, pods.shape)
    print(DESCRIPTIONS[arguments.action](space, request))
    return 0


def check_space(space: SearchSpace, _request: SweepRequest) -> str:
    return "\n".join([*(f"Note: {note}" for note in space.notes), "No errors."])


def explain_space(space: SearchSpace, request: SweepRequest) -> str:
    return explain(space, request.gpus, request.nodes or 1)


def convert_space(space: SearchSpace, _request: SweepRequest) -> str:
    return as_yaml(space).rstrip()


DESCRIPTIONS = {"check": check_space, "explain": explain_space, "convert": convert_space}


SERVICE_COMMENT = "The Service by which the nodes of a trial find each other, shared by all sweeps."
RUNTIME_COMMENT = "The pods of the trials. Created after the experiment, and deleted with it."


def print_plan(arguments: argparse.Namespace) -> int:
    config = _config_for(arguments.repo, os.environ.get("SWEEPBOT_CONFIG"))
    request = parse(arguments.request, config)
    settings = PlanSettings.read()
    with tempfile.TemporaryDirectory() as folder:
        try:
            order = asyncio.run(
                look_up(
                    Git(Path(folder), logins(config, os.environ)),
                    repository(request.repo, config),
                    request,
                    config,
                    sweep=f"{request.name or request.space}-planned",
                    owner="planned",
                    request_id="none",
                )
            )
        except GitUnavailableError as error:
            raise UserError(str(error)) from None
    order = placed_unmeasured(order, config.clusters, settings.image_registry)
    made = plan(order, settings)
    print(plan_text(request, made, config, _manifests(order, made, settings)), end="")
    return 0


def _config_for(url: str, file: str | None) -> Config:
    """Return the configuration, if there is one, with this repository as the only one."""
    config = read_config(Path(file)) if file else Config(repositories=())
    known = [repo for repo in config.repositories if bare(repo.url) == bare(url)]
    return replace(config, repositories=tuple(known or [Repository(name=Path(url).stem, url=url)]))


def _manifests(order: Order, made: SweepPlan, settings: PlanSettings) -> list[tuple[str, Manifest]]:
    parse_time = datetime.now(UTC)
    record = SweepRecord(
        id=order.sweep,
        namespace=settings.k8s_namespace,
        request=order.request,
        requester=Requester(user=order.owner, user_name=order.owner, channel="none"),
        request_id="none",
        created=parse_time,
        since=parse_time,
        plan=made,
        cluster=made.cluster,
    )
    experiment = gated(made.experiment) if made.space.gate else made.experiment
    return [
        *((f"Build: {build.role.label}.", build.job) for build in made.builds),
        *([(SERVICE_COMMENT, service(made.experiment_ref.namespace))] if made.needs_service else []),
        (gate_comment(made), experiment),
        *([(RUNTIME_COMMENT, made.runtime)] if made.runtime else []),
        ("Sweepbot's record of the sweep.", sweep_configmap.config_map(record)),
    ]
