"""A digest with real processes: due by the configuration, posted once, even if processes die."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from local import demo_usage
from local.world import world
from tests.scenarios.local_world import Instance, until

pytestmark = pytest.mark.slow


def appoint(config: Path, channel: str) -> None:
    hour = datetime.now(UTC).hour
    config.write_text(f"{config.read_text()}digests: [{{channel: {channel}, hour: {hour}}}]\n")


async def test_digest_of_a_channel_is_posted_once_at_its_hour(tmp_path: Path, mlflow_url: str) -> None:
    async with world(tmp_path, mlflow_url) as here:
        appoint(Path(here.env["SWEEPBOT_CONFIG"]), here.slack.workspace.channel("sweeps").id)
        await demo_usage.write(here.env["REDIS_URL"])
        await here.start_bot("serve", "work")

        def digests() -> list[dict[str, Any]]:
            return [one for one in here.slack.messages("sweeps") if one["text"].startswith("GPU digest")]

        def whole() -> bool:
            return any("slack_file" in block for one in digests() for block in one.get("blocks", []))

        await until(whole, "the digest is there with its picture")
        thread = here.slack.messages("sweeps", digests()[0]["ts"])[1:]
        files = [file["name"].rpartition(".")[2] for reply in thread for file in reply["files"]]
        assert files == ["png", "csv"]
        await Instance(here).kill_worker()
        await here.slack.command("ada", "sweeps", "/gpus", "digest")
        await until(lambda: "Already posted" in str(here.slack.ephemerals("ada")), "the worker has read it")
        assert len(digests()) == 1
