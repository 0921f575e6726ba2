"""Real processes, and a real Prometheus that scrapes what a kubelet exports: warnings about CPUs."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import yaml
from aiohttp import web

from bot.watch.idle.messages import UTILIZATION
from local.world import NAMESPACE, World, world
from tests.bot.measure.sources.prometheus_server import NEEDS_PROMETHEUS
from tests.free_port import free_port
from tests.scenarios.local_world import Instance, Sweep, is_alive, prepared, shown, until
from tests.servers import running

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), NEEDS_PROMETHEUS]

SPACE = """\
command: python tiny.py --wait=1
objective: {metric: loss, goal: minimize}
algorithm: grid
trials: {parallel: 2}
watch: {idle_minutes: 0.1}
parameters:
  width: {min: 1, max: 2}
"""


def exported(here: World) -> str:
    """As the kubelets' cAdvisor of pods that do nothing."""
    pods = [
        pod["metadata"]["name"]
        for pod in here.store.list("Pod", NAMESPACE)
        if pod["spec"].get("nodeName") and is_alive(pod)
    ]
    which = 'namespace="{0}",pod="{1}",container="main",id="/{1}"'
    lines = []
    for metric, value in (
        ("container_cpu_usage_seconds_total", 3),
        ("container_memory_working_set_bytes", 2**27),
    ):
        lines += [f"{metric}{{{which.format(NAMESPACE, name)}}} {value}" for name in pods]
    return "\n".join([*lines, ""])


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="instance")
async def _lab(tmp_path_factory: pytest.TempPathFactory, mlflow_url: str) -> AsyncIterator[Instance]:
    folder = tmp_path_factory.mktemp("instance")
    async with world(folder, mlflow_url) as here:

        async def metrics(_: web.Request) -> web.Response:
            return web.Response(text=exported(here), content_type="text/plain")

        app = web.Application()
        app.router.add_get("/metrics/cadvisor", metrics)
        runner = web.AppRunner(app)
        await runner.setup()
        kubelet, own = free_port(), free_port()
        await web.TCPSite(runner, "127.0.0.1", kubelet).start()
        scrape = {"job_name": "cadvisor", "metrics_path": "/metrics/cadvisor"}
        scrape |= {"static_configs": [{"targets": [f"127.0.0.1:{kubelet}"]}]}
        intervals = {"scrape_interval": "1s", "scrape_timeout": "1s"}
        (folder / "prometheus.yml").write_text(
            yaml.safe_dump({"global": intervals, "scrape_configs": [scrape]})
        )
        flags = ["--config.file=prometheus.yml", "--storage.tsdb.path=prometheus"]
        command = ["prometheus", *flags, f"--web.listen-address=127.0.0.1:{own}"]
        with running(command, own, folder / "prometheus.log", cwd=folder):
            here.env["PROMETHEUS_URL"] = f"http://127.0.0.1:{own}"
            made = prepared(here, "profiles: {big: {gpus: 0, cpu: 8, memory: 1Gi}}\n")
            made.commit("Add a space whose trainings wait", {"sweeps/asleep.yaml": SPACE})
            await here.start_bot("all")
            yield made
        await runner.cleanup()


def warnings(sweep: Sweep, *words: str) -> list[str]:
    parent = sweep.parent()
    thread = sweep.instance.slack.messages(sweep.channel, parent["ts"])[1:] if parent else []
    return [text for m in thread if m.get("blocks") and all(word in (text := shown(m)) for word in words)]


async def test_trial_without_gpus_is_reported_by_what_prometheus_says_of_its_pod(instance: Instance) -> None:
    sweep = await instance.sweep("branch=main profile=big space=asleep")
    await until(lambda: len(warnings(sweep, "8 CPUs idle for")) == 2, "both are flagged", sweep.story)
    assert len(warnings(sweep, "8 CPUs", "never stops a trial without GPUs")) == 2
    parent = sweep.parent()
    message = next(
        m for m in instance.slack.messages(sweep.channel, parent["ts"])[1:] if "8 CPUs idle" in shown(m)
    )
    assert await instance.slack.click("grace", sweep.channel, message["ts"], UTILIZATION) is None
    answer = await until(
        lambda: [m["text"] for m in instance.slack.ephemerals("grace") if "(Prometheus):" in m["text"]],
        "grace sees the use",
    )
    assert "mean 0.0% of 8 CPUs, memory max" in answer[0]
    instance.hold.unlink()
    await sweep.posts("Finished:")
    await until(lambda: len(warnings(sweep, "ended")) == 2, "the warnings are over", sweep.story)
