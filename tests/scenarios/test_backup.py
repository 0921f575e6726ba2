"""The documented backup, restored by kubectl: sweeps continue in a new cluster, in their old threads."""

import asyncio
import os
import re
import shutil
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from bot.core.record import Phase
from bot.platform.storage import sweep_configmap
from k8s.objects import SWEEP_LABEL
from local.kubernetes.apiserver.api import KUBECTL, serve
from tests.scenarios.sweep_in_memory import SWEEP, Clock, SimulatedSweep
from tests.scenarios.test_durable_record import forget_and_resync, rounds

pytestmark = pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl isn't installed")
DOCS = Path(__file__).parents[2] / "docs/operate.md"
SECTION = DOCS.read_text().split("## Back up and restore")[1].split("\n## ")[0]
BLOCKS = [" ".join(block.split("\\\n")) for block in re.findall(r"```sh\n(.*?)```", SECTION, re.DOTALL)]
BACKUP, RESTORE, RENAME = BLOCKS


@asynccontextmanager
async def kubectl_of(simulation, folder):
    """Runs shell commands against this cluster, in the folder."""
    server = await serve(simulation.kubernetes)
    server.kubeconfig(folder / "kubeconfig", below=KUBECTL)
    env = {**os.environ, "KUBECONFIG": str(folder / "kubeconfig"), "HOME": str(folder)}

    async def run(commands):
        pipe, mixed = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
        process = await asyncio.create_subprocess_shell(
            f"set -e\n{commands}", env=env, cwd=folder, stdout=pipe, stderr=mixed
        )
        said = (await process.communicate())[0].decode()
        assert process.returncode == 0, said

    try:
        yield run
    finally:
        await server.close()


async def backed_up(redis, folder, count, **scenario):
    """A sweep after so many reconciles, in a cluster that is then lost."""
    async with SimulatedSweep(redis, Clock(None), **scenario).started() as simulation:
        await rounds(simulation, count)
        async with kubectl_of(simulation, folder) as kubectl:
            await kubectl(BACKUP)
        return await simulation.record()


@asynccontextmanager
async def restored(redis, folder, edit="", **scenario):
    """A new cluster with the backup in it, and an empty Redis."""
    async with SimulatedSweep(redis, Clock(None), **scenario).started() as simulation:
        async with kubectl_of(simulation, folder) as kubectl:
            create = RESTORE.splitlines()[1]  # the namespaces exist
            await kubectl(f"{edit}{create} --validate=false")  # the local API server has no OpenAPI document
        await forget_and_resync(simulation)
        await rounds(simulation, 14)
        yield simulation


async def test_building_sweep_continues_in_its_thread_to_the_end(redis, tmp_path):
    before = await backed_up(redis, tmp_path, 3)
    assert before.phase is Phase.BUILDING
    async with restored(redis, tmp_path) as simulation:
        after = await simulation.record()
        assert (after.phase, after.thread, simulation.slack.opened) == (Phase.SUCCEEDED, before.thread, 0)
        assert "Redis lost its data" in simulation.slack.posted[0]


async def test_running_sweep_fails_in_its_thread_with_the_reason(redis, tmp_path):
    before = await backed_up(redis, tmp_path, 8, endless=True, image=True)
    assert before.phase is Phase.RUNNING
    async with restored(redis, tmp_path) as simulation:
        after = await simulation.record()
        assert (after.phase, after.thread, simulation.slack.opened) == (Phase.FAILED, before.thread, 0)
        assert "The Katib experiment was deleted, or isn't in this cluster" in simulation.slack.posted[-1]
        assert simulation.kubernetes.list("Experiment") == []


async def test_ended_sweep_stays_ended_without_a_message(redis, tmp_path):
    before = await backed_up(redis, tmp_path, 30)
    assert before.phase is Phase.SUCCEEDED
    async with restored(redis, tmp_path) as simulation:
        assert simulation.slack.posted == []
        label = simulation.kubernetes.get("ConfigMap", "sweeps", f"sweep-{SWEEP}")["metadata"]["labels"]
        assert label["sweepbot/state"] == "ended"


async def test_edited_backup_is_of_another_namespace_throughout(redis, tmp_path):
    await backed_up(redis, tmp_path, 8, endless=True, image=True)
    rename = await asyncio.create_subprocess_shell(RENAME, cwd=tmp_path)
    assert await rename.wait() == 0
    maps = yaml.safe_load((tmp_path / "sweepbot-backup.yaml").read_bytes())["items"]
    assert {each["metadata"]["namespace"] for each in maps} == {"lab"}
    [record] = [sweep_configmap.read(each) for each in maps if SWEEP_LABEL in each["metadata"]["labels"]]
    assert (record.namespace, record.plan.experiment_ref.namespace) == ("lab", "lab")
    assert {build.job["metadata"]["namespace"] for build in record.plan.builds} <= {"lab"}
