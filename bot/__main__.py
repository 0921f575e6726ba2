"""The command line: sweepbot serve, work, all, doctor, and plan."""

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
from bot.core.errors import UserError
from bot.core.masking import Mask, of_environment
from bot.core.record import SweepRecord
from bot.core.request import Requester
from bot.doctor import examination
from bot.doctor.findings import Level, as_json, as_lines
from bot.launch.command_line import parse
from bot.launch.plan import Order, plan
from bot.launch.resolve import look_up
from bot.repos.git import Git, GitUnavailableError, logins
from bot.runtime import log_format
from bot.storage import sweep_configmap
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
    return parser.parse_args()


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
    return [sweep_configmap.config_map(record), *(build.job for build in made.builds), made.experiment]


if __name__ == "__main__":
    sys.exit(main())
