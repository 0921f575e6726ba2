"""sweepbot serve | work | all | doctor | plan: the one place where all parts meet."""

import argparse
import asyncio
import logging
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import yaml
from redis.asyncio import Redis
from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler

from bot import doctor, durable
from bot.config import Config, Repository, parse_config, repository
from bot.findings import Level, as_json, as_lines
from bot.git import Git, GitUnavailable
from bot.lookup import look_up
from bot.models import Asker, SweepRecord, UserError
from bot.outside import Outside
from bot.planning import Order, plan
from bot.queue import Queue
from bot.request import parse
from bot.results import Results
from bot.settings import PlanSettings, Settings
from bot.slack import Slack, client
from bot.store import Store
from bot.worker import work
from handlers.app import build
from handlers.door import Door
from k8s.cluster import Cluster
from k8s.objects import Manifest
from k8s.registry import Registry

log = logging.getLogger("sweepbot")


def main() -> int:
    arguments = _arguments()
    try:
        return arguments.run(arguments)  # type: ignore[no-any-return]
    except UserError as error:
        print(error, file=sys.stderr)
        return 2


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="sweepbot", description="Hyperparameter sweeps from Slack on Kubernetes."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, jobs, words in (
        ("serve", (serve,), "answer Slack: commands and buttons"),
        ("work", (workers,), "take turns: builds, experiments, messages"),
        ("all", (serve, workers), "both in one process, for a small team"),
    ):
        command = commands.add_parser(name, help=words, description=words)
        command.set_defaults(run=_service, jobs=jobs)
    words = "does this installation work? Exits with 1 when something is broken"
    examiner = commands.add_parser("doctor", help=words, description=words)
    examiner.add_argument("--json", action="store_true", help="for programs")
    examiner.set_defaults(run=_doctor)
    planner = commands.add_parser("plan", help="print what a sweep would create, asking git only")
    planner.add_argument("request", help="what you would type after /sweep")
    planner.add_argument("--repo", required=True, metavar="URL", help="the git repository, https or http")
    planner.set_defaults(run=_plan)
    return parser.parse_args()


def _service(arguments: argparse.Namespace) -> int:
    settings = Settings.read()
    logging.basicConfig(level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    config = _config(settings.sweepbot_config)
    asyncio.run(_run(arguments.jobs, settings, config))
    return 0


def _doctor(arguments: argparse.Namespace) -> int:
    settings = Settings.read()
    findings = asyncio.run(doctor.run(settings, _config(settings.sweepbot_config)))
    print(as_json(findings) if arguments.json else as_lines(findings))
    return int(any(one.level is Level.BROKEN for one in findings))


def _config(path: Path) -> Config:
    try:
        return parse_config(path.read_text(), path.name)
    except OSError as error:
        raise UserError(f"SWEEPBOT_CONFIG: {path} can't be read ({error.strerror}).") from None


Job = Callable[[Settings, Config, Redis], Awaitable[None]]


async def _run(jobs: tuple[Job, ...], settings: Settings, config: Config) -> None:
    """Until SIGTERM or SIGINT; a job that fails ends the process, for its supervisor to start anew."""
    redis = Redis.from_url(settings.redis_url)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        tasks = [asyncio.ensure_future(job(settings, config, redis)) for job in jobs]
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
        failed = [task for task in tasks if task.done()]
        for task in (*tasks, stopping):
            task.cancel()
        await asyncio.gather(*tasks, stopping, return_exceptions=True)
        for task in failed:
            task.result()
    finally:
        await redis.aclose()


async def serve(settings: Settings, config: Config, redis: Redis) -> None:
    web = client(settings.slack_bot_token.get_secret_value(), settings.slack_api_url)
    await web.auth_test()  # a wrong token ends the start here, not at the first command
    queue = Queue(redis)
    door = Door(store=Store(redis), queue=queue, config=config, namespace=settings.k8s_namespace, now=_now)
    handler = AsyncSocketModeHandler(build(web, door), settings.slack_secret())
    await handler.connect_async()  # type: ignore[no-untyped-call]
    log.info("answering Slack")
    try:
        await asyncio.Event().wait()
    finally:
        await handler.close_async()  # type: ignore[no-untyped-call]


async def workers(settings: Settings, config: Config, redis: Redis) -> None:
    async with AsyncExitStack() as stack:
        cluster = await Cluster.connect()
        stack.push_async_callback(cluster.close)
        registry = Registry(settings.registry_api, insecure=settings.image_registry_plain_http)
        stack.push_async_callback(registry.close)
        outside = Outside(
            store=Store(redis),
            queue=Queue(redis),
            cluster=cluster,
            registry=registry,
            git=Git(settings.sweepbot_data / "git"),
            slack=Slack(client(settings.slack_bot_token.get_secret_value(), settings.slack_api_url)),
            results=Results(settings.mlflow_tracking_uri, settings.mlflow_ui),
            settings=settings,
            config=config,
            now=_now,
        )
        log.info("taking turns in namespace %s", settings.k8s_namespace)
        await work(redis, outside, settings.worker_turns)


def _now() -> datetime:
    return datetime.now(UTC)


def _plan(arguments: argparse.Namespace) -> int:
    repo = Repository(name=Path(arguments.repo).stem, url=arguments.repo)
    config = Config(repositories=(repo,))
    request = parse(arguments.request, config)
    settings = PlanSettings.read()
    with tempfile.TemporaryDirectory() as folder:
        try:
            order = asyncio.run(
                look_up(
                    Git(Path(folder)),
                    repository(request.repo, config),
                    request,
                    config.limits,
                    sweep=f"{request.name or request.space}-planned",
                    owner="nobody",
                )
            )
        except GitUnavailable as error:
            raise UserError(str(error)) from None
    print(yaml.dump_all(_manifests(order, settings), Dumper=_Plain, sort_keys=False, width=1000), end="")
    return 0


class _Plain(yaml.SafeDumper):
    """Without anchors: labels that two places share are written twice, as people write them."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


def _manifests(order: Order, settings: PlanSettings) -> list[Manifest]:
    made, now = plan(order, settings), _now()
    record = SweepRecord(
        id=order.sweep,
        namespace=settings.k8s_namespace,
        request=order.request,
        asker=Asker(user=order.owner, user_name=order.owner, channel="none"),
        delivery="none",
        created=now,
        since=now,
        plan=made,
    )
    return [durable.config_map(record), made.build, made.experiment]


if __name__ == "__main__":
    sys.exit(main())
