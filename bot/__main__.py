"""The command line: sweepbot serve, work, all, doctor, plan, and space."""

import argparse
import asyncio
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import yaml

from bot.app import now, run, serve, workers
from bot.config.policy import Config, Repository, bare, parse_config, repository
from bot.config.settings import PlanSettings, Settings
from bot.config.yaml_reader import MAX_CHARACTERS
from bot.core.errors import UserError
from bot.core.masking import Mask, of_environment
from bot.core.record import SweepRecord
from bot.core.request import Requester, SweepRequest
from bot.core.space import SearchSpace
from bot.doctor import examination
from bot.doctor.findings import Level, as_json, as_lines
from bot.launch.command_line import parse, parse_options, read_values
from bot.launch.describe import as_yaml, explain
from bot.launch.plan import Order, check_command, check_mounts, plan
from bot.launch.resolve import look_up
from bot.launch.space import parse_space
from bot.repos.git import Git, GitUnavailableError, logins
from bot.runtime import log_format
from bot.storage import sweep_configmap
from k8s.katib.spec import gated
from k8s.objects import Manifest


def main() -> int:
    arguments, mask = _arguments(), Mask(of_environment(os.environ))
    log_format.start("WARNING", "text", mask)  # until the settings are read
    try:
        return arguments.run(arguments)  # type: ignore[no-any-return]
    except UserError as error:
        print(mask(str(error)), file=sys.stderr)
        return 2


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="sweepbot", description="Run hyperparameter sweeps on Kubernetes from Slack."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, jobs, words in (
        ("serve", (serve,), "serve Slack commands, buttons, and forms"),
        ("work", (workers,), "run the workers: builds, experiments, messages"),
        ("all", (serve, workers), "run serve and work in one process (small teams)"),
    ):
        command = commands.add_parser(name, help=words, description=words)
        command.set_defaults(run=_service, jobs=jobs)
    words = "check this installation; exit with 1 if anything is broken"
    examiner = commands.add_parser("doctor", help=words, description=words)
    examiner.add_argument("--json", action="store_true", help="print findings as JSON")
    examiner.set_defaults(run=_doctor)
    planner = commands.add_parser(
        "plan", help="print the Kubernetes manifests that a sweep would create; reads git, changes nothing"
    )
    planner.add_argument("request", help="options as typed after /sweep")
    planner.add_argument(
        "--repo", required=True, metavar="URL", help="https or http URL of the git repository"
    )
    planner.set_defaults(run=_plan)
    _add_space(commands)
    return parser.parse_args()


def _add_space(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    words = "check, explain, or convert a space file, a Katib Experiment, or a W&B sweep file"
    actions = commands.add_parser("space", help=words, description=words).add_subparsers(
        required=True, metavar="ACTION"
    )
    for name, describe, about in (
        ("check", _checked, "report every error with its line; exits with 2 if there is one"),
        ("explain", _explained, "print what would be tried, how many combinations, and GPU-hours at most"),
        ("convert", _as_yaml, "print the space file that says the same"),
    ):
        action = actions.add_parser(name, help=about, description=about)
        action.add_argument("file", type=Path)
        action.add_argument("options", nargs="?", default="", help="options as typed after /sweep")
        action.set_defaults(run=_space, describe=describe)


def _space(arguments: argparse.Namespace) -> int:
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
    check_command(space.command)
    check_mounts(space, config.trials)
    print(arguments.describe(space, request))
    return 0


def _checked(space: SearchSpace, _request: SweepRequest) -> str:
    return "\n".join([*(f"Note: {note}" for note in space.notes), "No errors."])


def _explained(space: SearchSpace, request: SweepRequest) -> str:
    return explain(space, request.gpus)


def _as_yaml(space: SearchSpace, _request: SweepRequest) -> str:
    return as_yaml(space).rstrip()


def _service(arguments: argparse.Namespace) -> int:
    settings = Settings.read()
    log_format.start(settings.log_level, settings.log_format, Mask(settings.secrets()))
    asyncio.run(run(arguments.jobs, settings, _config(settings.sweepbot_config)))
    return 0


def _doctor(arguments: argparse.Namespace) -> int:
    settings = Settings.read()
    findings = asyncio.run(examination.run(settings, _config(settings.sweepbot_config)))
    print(Mask(settings.secrets())(as_json(findings) if arguments.json else as_lines(findings)))
    return int(any(one.level is Level.BROKEN for one in findings))


def _config(path: Path) -> Config:
    try:
        return parse_config(path.read_text(), path.name)
    except OSError as error:
        raise UserError(f"SWEEPBOT_CONFIG: {path} can't be read ({error.strerror}).") from None


def _plan(arguments: argparse.Namespace) -> int:
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
                    owner="nobody",
                    request_id="none",
                )
            )
        except GitUnavailableError as error:
            raise UserError(str(error)) from None
    print(yaml.dump_all(_manifests(order, settings), Dumper=_Plain, sort_keys=False, width=1000), end="")
    return 0


def _config_for(url: str, file: str | None) -> Config:
    """Return the configuration, if there is one, with this repository as the only one."""
    config = _config(Path(file)) if file else Config(repositories=())
    known = [repo for repo in config.repositories if bare(repo.url) == bare(url)]
    return replace(config, repositories=tuple(known or [Repository(name=Path(url).stem, url=url)]))


class _Plain(yaml.SafeDumper):
    """Write shared values twice instead of with anchors."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


def _manifests(order: Order, settings: PlanSettings) -> list[Manifest]:
    made, parse_time = plan(order, settings), now()
    record = SweepRecord(
        id=order.sweep,
        namespace=settings.k8s_namespace,
        request=order.request,
        requester=Requester(user=order.owner, user_name=order.owner, channel="none"),
        request_id="none",
        created=parse_time,
        since=parse_time,
        plan=made,
    )
    return [
        sweep_configmap.config_map(record),
        *(build.job for build in made.builds),
        gated(made.experiment) if made.space.gate else made.experiment,
    ]


if __name__ == "__main__":
    sys.exit(main())
