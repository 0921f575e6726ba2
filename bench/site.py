"""What `serve` needs to run on this machine: a Redis that writes its file, a Slack, and a configuration."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from local import slack
from local.redis import redis

SIGNING_SECRET = "8f742231b10e8888abcd99yyyzzz85a5"  # noqa: S105 - of a Slack on this machine
CONFIG = "repositories:\n  digits: {url: https://git.example/digits.git}\n"


@dataclass(frozen=True)
class Site:
    """`env`: the environment of a process that runs here."""

    env: dict[str, str]
    slack: slack.Slack
    redis_url: str


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    with tempfile.TemporaryDirectory(prefix="sweepbot-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "redis").mkdir()
        (folder / "config.yaml").write_text(CONFIG)
        with redis(folder / "redis") as url:
            chat = await slack.serve()
            try:
                yield Site(_environment(folder, chat, url), chat, url)
            finally:
                await chat.close()


def _environment(folder: Path, chat: slack.Slack, redis_url: str) -> dict[str, str]:
    return {
        "SLACK_BOT_TOKEN": chat.bot_token,
        "SLACK_APP_TOKEN": chat.app_token,
        "SLACK_SIGNING_SECRET": SIGNING_SECRET,
        "SLACK_API_URL": chat.api_url,
        "REDIS_URL": redis_url,
        "SWEEPBOT_CONFIG": str(folder / "config.yaml"),
        "SWEEPBOT_DATA": str(folder / "data"),
        "SWEEPBOT_UNCONFIRMED": str(folder / "unconfirmed"),
        "IMAGE_REGISTRY": "registry.example:5000",
        "MLFLOW_TRACKING_URI": "http://mlflow.example:5000",
        "HTTP_HOST": "127.0.0.1",
        "LOG_LEVEL": "ERROR",
    }
