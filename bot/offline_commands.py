"""The commands that need no services except git: `sweepbot plan` (its summary, and the comments on its
manifests), `space`, `config`, and `schema` (JSON Schemas for editors).
"""

import argparse
import asyncio
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from bot.core.errors import UserError
from bot.core.plan import SweepPlan
from bot.core.record import SweepRecord
from bot.core.request import Requester, SweepRequest
from bot.core.space import SearchSpace
from bot.platform.config.package import project_url
from bot.platform.config.policy import Config, read_config, repository
from bot.platform.config.repositories import Repository, bare
from bot.platform.config.section import json_schema
from bot.platform.config.settings import PlanSettings
from bot.platform.config.yaml_reader import MAX_CHARACTERS
from bot.platform.repos.git import Git
from bot.platform.repos.git_commands import GitUnavailableError, logins
from bot.platform.slack.mrkdwn import SHORT_COMMIT
from bot.platform.storage import sweep_configmap
from bot.sweep.form.preview import facts, request_name
from bot.sweep.launch.budget import with_budget
from bot.sweep.launch.cluster_choice import placed_unmeasured
from bot.sweep.launch.command_line import parse, parse_options
from bot.sweep.launch.plan import Order, plan
from bot.sweep.launch.resolve import look_up
from bot.sweep.launch.space_check import read_space
from bot.sweep.spaces.describe import as_yaml, explain
from bot.sweep.spaces.space_keys import SpaceFile
from bot.text.terminal import typed, without_markup
from bot.text.wording import counted, printable
from k8s.katib.manifest import gated
from k8s.katib.multi_node import service
from k8s.objects import Manifest

DRAFT = "https://json-schema.org/draft/2020-12/schema"
SCHEMAS = {"space": ("space file", SpaceFile), "config": ("configuration file", Config)}


def print_schema(arguments: argparse.Namespace) -> int:
    print(schema_text(arguments.kind, project_url("Documentation")), end="")
    return 0


def schema_text(kind: str, site: str = "") -> str:
    """Return the JSON Schema of a kind of file, for editors.

    Args:
        site: the URL of this version's documents, which have the schema at its `$id`.
    """
    title, section = SCHEMAS[kind]
    address = {"$id": f"{site}/schemas/{kind}.schema.json"} if site else {}
    whole = address | {"$schema": DRAFT, "title": f"Sweepbot {title}"} | _published(json_schema(section))
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _published(schema: Any) -> Any:
    """Return a schema without what only the reference shows."""
    if isinstance(schema, dict):
        hidden = {"x-default", "x-example"} | ({"default"} if "description" in schema else set())
        return {key: _published(each) for key, each in schema.items() if key not in hidden}
    return [_published(each) for each in schema] if isinstance(schema, list) else schema


def check_config(arguments: argparse.Namespace) -> int:
    read_config(Path(arguments.file))
    print("No errors.")
    return 0


def run_space(arguments: argparse.Namespace) -> int:
    """Run the action on each file, and report the errors of all."""
    files = [word for word in arguments.words if "=" not in word or Path(word).exists()]
    options = parse_options(typed([word for word in arguments.words if word not in files]))
    found, wrong = [], []
    for file in files:
        try:
            text = _of_space(arguments.action, Path(file), options)
            found.append(f"{file}: {text}" if len(files) > 1 else text)
        except UserError as error:
            wrong.append(str(error))
    if wrong or not files:
        raise UserError("\n".join(wrong) or "Name a space file, such as sweeps/lr.yaml.")
    print("\n".join(found))
    return 0


def _of_space(action: str, path: Path, options: Mapping[str, str]) -> str:
    config = _config_for("https://example.invalid/x.git", os.environ.get("SWEEPBOT_CONFIG"))
    try:
        with path.open(errors="replace") as file:
            text = file.read(MAX_CHARACTERS + 1)
    except OSError as error:
        raise UserError(f"{path} can't be read ({error.strerror}).") from None
    named = {"space": path.stem.lower(), **options}
    space, request = read_space(text, str(path), named, config, on_cluster="SWEEPBOT_CONFIG" in os.environ)
    return DESCRIPTIONS[action](space, request)


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
    local = "://" not in arguments.repo
    url = _local(arguments.repo) if local else arguments.repo
    protocols = "https:http:file" if local else "https:http"  # a remote one names no files of this machine
    config = _config_for(url, os.environ.get("SWEEPBOT_CONFIG"))
    request = parse(typed(arguments.request), config)
    settings = PlanSettings.read()
    with tempfile.TemporaryDirectory() as folder:
        if local:  # named by the person; in a container, it often belongs to another user
            trusted = Path(folder, "home", ".gitconfig")
            trusted.parent.mkdir()
            trusted.write_text("[safe]\ndirectory = *\n")
        try:
            order = asyncio.run(
                look_up(
                    Git(Path(folder), logins(config, os.environ), protocols=protocols),
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
    order = placed_unmeasured(with_budget(order, config), config.clusters, settings.image_registry)
    made = plan(order, settings)
    print(plan_text(request, made, config, _manifests(order, made, settings)), end="")
    return 0


def _local(folder: str) -> str:
    path = Path(folder).resolve()
    if not path.is_dir():
        raise UserError(f"--repo={folder} is neither a URL (https, http) nor a directory.")
    if not ((path / ".git").exists() or (path / "HEAD").exists()):  # the latter: a bare one
        raise UserError(f"{path} isn't a git repository's top directory. Run it there, or name it by --repo.")
    return path.as_uri()


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
        *((f"Build: {build.role.label}.", build.job) for build in made.all_builds),
        *([(SERVICE_COMMENT, service(made.experiment_ref.namespace))] if made.needs_service else []),
        (gate_comment(made), experiment),
        *([(RUNTIME_COMMENT, made.runtime)] if made.runtime else []),
        ("Sweepbot's record of the sweep.", sweep_configmap.config_map(record)),
    ]


LABEL_WIDTH = 12  # characters, `GPU-hours:` and `Time limit:` included; few labels are longer


def plan_text(
    request: SweepRequest, plan: SweepPlan, config: Config, manifests: Iterable[tuple[str, Manifest]]
) -> str:
    """Return the summary and the manifests, each below a comment that says what it is for.

    Args:
        manifests: in order, each with its comment.
    """
    documents = [f"# {printable(comment)}\n{_dumped(manifest)}" for comment, manifest in manifests]
    separator = "---\n"
    return f"{summary(request, plan, config)}\n\n{separator.join(documents)}"


def summary(request: SweepRequest, plan: SweepPlan, config: Config) -> str:
    """Return the lines of the summary. Every line is a comment, whatever a name or a commit's subject has."""
    return "\n".join(f"# {printable(line)}" for line in _lines(request, plan, config))


def _lines(request: SweepRequest, plan: SweepPlan, config: Config) -> Iterator[str]:
    commit = f"{plan.commit[:SHORT_COMMIT]} {plan.subject}".strip()
    at = "" if plan.branches else f" @ {commit}"  # several are among the facts
    yield f"{request_name(request)} on {request.branch}{at}"
    for label, value in [*facts(request, plan, config), *_builds(plan)]:
        yield f"{label + ':':<{LABEL_WIDTH}} {without_markup(value)}"
    yield from (f"Note: {note}" for note in plan.space.notes)


def _builds(plan: SweepPlan) -> Iterator[tuple[str, str]]:
    if plan.builds:
        yield "Builds", f"{counted(len(plan.all_builds), 'Job')}; the image is {plan.image_by_digest}"


def gate_comment(plan: SweepPlan) -> str:
    """Explain the counts of the experiment's manifest, which the gate changes after the first trial."""
    space, created = plan.space, "The experiment, created when the image is built."
    if not space.gate:
        return created
    return (
        f"{created} It starts with maxTrialCount: 1, for the first trial. When that trial is healthy, "
        f"Sweepbot sets maxTrialCount: {space.max_trials}, parallelTrialCount: {space.parallel}, and "
        f"maxFailedTrialCount: {space.max_failed}."
    )


class _Plain(yaml.SafeDumper):
    """Write shared values twice instead of with anchors."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


def _dumped(manifest: Manifest) -> str:
    return str(yaml.dump(manifest, Dumper=_Plain, sort_keys=False, width=1000))
