"""Start all services that Sweepbot uses, and build the environment that points it to them."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from local import cluster, demo_usage, git_server, registry, slack
from local.cluster import NAMESPACE, TOKEN, WORKER
from local.katib import Katib
from local.kubernetes.apiserver.api import ApiServer
from local.kubernetes.apiserver.store import Store
from local.kubernetes.node.kubelet import Kubelet
from local.processes import Processes
from local.redis import redis
from local.slack.workspace import ADA

__all__ = ["NAMESPACE", "TOKEN", "WORKER", "World", "world"]

NODES = {"gpu-1": 2, "gpu-2": 2}  # GPUs
# Without its job runner, MLflow starts much faster.
MLFLOW = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
REPOSITORIES = ("digits", "uv", "requirements")
# The bot's permissions and service account, as in an installation: it never uses the admin's ./kubeconfig.
DEPLOYED = ("base/namespaces.yaml", "base/rights.yaml", "doctor/rights.yaml", "usage/rights.yaml")


@dataclass
class World:
    folder: Path
    env: dict[str, str]  # for Sweepbot's processes
    slack: slack.Slack
    api: ApiServer
    store: Store
    kubelet: Kubelet
    katib: Katib
    processes: Processes
    git: Path  # working copies of the users

    async def start_bot(self, *commands: str) -> None:
        for command in commands:
            await self.processes.start(command, sys.executable, "-m", "bot", command, env=self.env)
        while not self.slack.sockets.connections:
            self.processes.check()
            await asyncio.sleep(0.05)


@asynccontextmanager
async def world(
    folder: Path,
    tracking: str = "",
    repositories: Mapping[str, Path] | None = None,
    nodes: Mapping[str, int] = NODES,
) -> AsyncIterator[World]:
    """Start everything except the bot, until the end of the block.

    Args:
        tracking: URL of an MLflow to use.
        repositories: more of them, by name: git directories, which are only read. The first is the default.
        nodes: GPUs of each.
    """
    async with AsyncExitStack() as stack:
        for name in ("logs", "blobs", "pods", "git", "clones"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        processes = Processes(folder / "logs")
        stack.push_async_callback(processes.stop_all)
        redis_url = stack.enter_context(redis(folder / "redis"))
        chat = await slack.serve()
        stack.push_async_callback(chat.close)
        images = await registry.serve(folder / "blobs")
        stack.push_async_callback(images.close)
        host = await git_server.serve(folder / "git")
        stack.push_async_callback(host.close)
        for name in REPOSITORIES:
            publish(EXAMPLES / name, folder / "clones" / name, folder / "git" / f"{name}.git")
        for name, place in (repositories or {}).items():
            (folder / "git" / f"{name}.git").symlink_to(place)
        tracking = tracking or await start_mlflow(folder, processes)
        home = await cluster.start(stack, folder, nodes, images.address, _install)
        env = _environment(folder, chat, host.url, [*(repositories or ()), *REPOSITORIES]) | {
            "REDIS_URL": redis_url,
            "IMAGE_REGISTRY": images.address,
            "MLFLOW_TRACKING_URI": tracking,
            "KATIB_DB_MANAGER": home.katib.db_manager.address,
        }
        parts = (home.server, home.store, home.kubelet, home.katib, processes)
        yield World(folder, env, chat, *parts, folder / "clones")


def _install(store: Store) -> None:
    cluster.apply(store, *DEPLOYED)
    cluster.apply(store, "namespace/rights.yaml", namespace="speech")


def _environment(
    folder: Path, chat: slack.Slack, git_url: str, repositories: Iterable[str]
) -> dict[str, str]:
    config = folder / "config.yaml"
    known = "".join(f"  {name}: {{url: {git_url.rstrip('/')}/{name}.git}}\n" for name in repositories)
    config.write_text(f"repositories:\n{known}admins: [{ADA.id}]\nsearch_service: true\n{demo_usage.CONFIG}")
    return {
        "SLACK_BOT_TOKEN": chat.bot_token,
        "SLACK_APP_TOKEN": chat.app_token,
        "SLACK_API_URL": chat.api_url,
        "SWEEPBOT_CONFIG": str(config),
        "SWEEPBOT_DATA": str(folder / "data"),
        "SWEEPBOT_UNCONFIRMED": str(folder / "unconfirmed"),
        "KUBECONFIG": str(folder / "bot-kubeconfig"),
        "K8S_NAMESPACE": NAMESPACE,
        "IMAGE_REGISTRY_PLAIN_HTTP": "true",
        "HTTP_HOST": "127.0.0.1",
        "HTTP_PORT": "0",
        "SHUTDOWN_GRACE": "3",
        "USAGE_SECONDS": "2",
        "WATCH_SECONDS": "2",
        "LOG_FORMAT": "text",
        "PYTHONPATH": str(_without_pandas(folder)),
    }


def _without_pandas(folder: Path) -> Path:
    """Return a directory of modules that hides pandas, which Sweepbot's image doesn't have either.

    MLflow's client imports pandas where it is installed, which takes each process a second of CPU time.
    """
    (modules := folder / "modules").mkdir()
    (modules / "pandas.py").write_text("raise ModuleNotFoundError(__name__)\n")
    return modules


async def start_mlflow(folder: Path, processes: Processes) -> str:
    """Start MLflow on a free port that the system assigns."""
    store = f"sqlite:///{folder / 'mlflow.db'}"
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", "0"]
    command += ["--backend-store-uri", store, "--artifacts-destination", str(folder / "artifacts")]
    await processes.start("mlflow", *command, "--workers", "1", env=MLFLOW)
    return await processes.says("mlflow", r"running on (http://[0-9.:]+)")


def publish(example: Path, copy: Path, bare: Path) -> None:
    """Publish an example as a git repository: a working copy, and a bare one on the git host."""
    shutil.copytree(example, copy, dirs_exist_ok=True)
    git(copy.parent, "init", "--quiet", "--bare", "--initial-branch=main", str(bare))
    git(copy, "init", "--quiet", "--initial-branch=main")
    git(copy, "remote", "add", "origin", str(bare))
    git(copy, "config", "user.name", "Ada Lovelace")
    git(copy, "config", "user.email", "ada@lab.example")
    commit(copy, "Search the learning rate of a small network on the digits")


def commit(copy: Path, message: str) -> str:
    """Commit all changes of a working copy, push its branch, and return the commit."""
    git(copy, "add", "--all")
    git(copy, "commit", "--quiet", "-m", message)
    git(copy, "push", "--quiet", "--set-upstream", "origin", "HEAD")
    return git(copy, "rev-parse", "HEAD").strip()


def git(folder: Path, *arguments: str) -> str:
    """Run git without the user's settings, such as hooks and signing."""
    env = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", *arguments]
    return subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True, text=True).stdout
