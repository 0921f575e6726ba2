"""How a pod on the nodes of the local world ends: deleted, over its deadline, or with its kubelet."""

from pathlib import Path

from local.kubernetes.node.kubelet import OVER_TIME
from tests.local.kubernetes.node.pods import gpu, sh


async def test_deleted_pod_gets_sigterm_first(start, tmp_path):
    cluster = start()
    trap = f"trap 'echo bye > {tmp_path}/said; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    cluster.run("long", sh(trap))
    await cluster.until(lambda: cluster.log("long") == "ready\n", "it runs")
    cluster.store.delete("Pod", "default", "long")
    assert cluster.pod("long")["metadata"]["deletionTimestamp"]
    await cluster.until(lambda: cluster.pod("long") is None, "the pod is gone")
    assert (tmp_path / "said").read_text() == "bye\n"


async def test_sigterm_goes_to_the_first_process_only(start, tmp_path):
    """As containerd does it: a training behind a shell is killed, unless the shell passes the signal on."""
    cluster = start()
    child = f"trap 'touch {tmp_path}/told; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    cluster.run("long", sh(f'( {child} ); echo "over"'))
    await cluster.until(lambda: cluster.log("long") == "ready\n", "it runs")
    cluster.store.delete("Pod", "default", "long")
    await cluster.until(lambda: cluster.pod("long") is None, "the pod is gone")
    assert not (tmp_path / "told").exists()
    # Its Job may keep the pod until it has counted it.
    cluster.run("early", sh("true"), volumes=[{"name": "none", "secret": {"secretName": "none"}}])
    await cluster.until(lambda: "FailedMount" in dict(cluster.events("early")), "it waits for its volume")
    cluster.store.patch("Pod", "default", "early", {"metadata": {"finalizers": ["example.org/kept"]}})
    cluster.store.delete("Pod", "default", "early")
    await cluster.phase("early", "Failed")
    cluster.run("deaf", sh("trap '' TERM; echo $$$$; while :; do sleep 0.05; done"))
    pid = int(await cluster.until(lambda: cluster.log("deaf"), "it runs"))
    cluster.store.delete("Pod", "default", "deaf", grace=1)
    await cluster.until(lambda: cluster.pod("deaf") is None, "the pod is gone")
    assert not _alive(pid)


async def test_pod_over_its_deadline_has_failed_and_releases_its_gpus(start):
    """However well its processes end."""
    cluster = start(nodes={"gpu-1": 2})
    slow = sh("trap 'exit 0' TERM; while :; do sleep 0.05; done", **gpu(2))
    cluster.run("slow", slow, activeDeadlineSeconds=1)
    await cluster.phase("slow", "Running")
    cluster.run("next", slow)
    assert await cluster.phase("slow", "Failed", "Succeeded") == "Failed"
    status = cluster.pod("slow")["status"]
    assert (status["reason"], status["message"]) == OVER_TIME
    await cluster.phase("next", "Running")


async def test_closed_kubelet_runs_nothing(start):
    cluster = start()
    cluster.run("long", sh("sleep 1000 & echo $!; wait"))
    pid = int(await cluster.until(lambda: cluster.log("long"), "it runs"))
    await cluster.kubelet.close()
    await cluster.until(lambda: not _alive(pid), "its children are gone too")


def _alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().split()[2] != "Z"


def sidecar(script, **more):
    return sh(script, "beside", **{"restartPolicy": "Always"} | more)


SHARED = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
WITH_DATA = {"volumes": [{"name": "data", "emptyDir": {}}]}


async def test_sidecar_starts_before_the_training_and_gets_sigterm_after_it(start):
    cluster = start()
    probe = {"exec": {"command": ["test", "-f", "/data/ready"]}}
    script = "trap 'cat /data/out; exit 3' TERM; touch /data/ready; while :; do sleep 0.05; done"
    main = sh("ls /data; echo trained > /data/out", **SHARED)
    cluster.run("p", main, initContainers=[sidecar(script, startupProbe=probe, **SHARED)], **WITH_DATA)
    assert await cluster.phase("p", "Succeeded", "Failed") == "Succeeded"
    assert (cluster.log("p"), cluster.log("p", "beside")) == ("ready\n", "trained\n")
    [status] = cluster.pod("p")["status"]["initContainerStatuses"]
    assert (status["state"]["terminated"]["exitCode"], status["restartCount"]) == (3, 0)


async def test_sidecar_that_crashes_is_started_again_and_the_training_continues(start):
    cluster = start()
    script = "test -f /data/once || { touch /data/once; exit 3; }; trap 'exit 0' TERM; touch /data/again"
    script += "; while :; do sleep 0.05; done"
    main = sh("while ! test -f /data/again; do sleep 0.05; done", **SHARED)
    cluster.run("p", main, initContainers=[sidecar(script, **SHARED)], **WITH_DATA)
    assert await cluster.phase("p", "Succeeded", "Failed") == "Succeeded"
    [status] = cluster.pod("p")["status"]["initContainerStatuses"]
    assert (status["restartCount"], status["lastState"]["terminated"]["exitCode"]) == (1, 3)


async def test_sidecar_that_ignores_sigterm_is_killed_after_the_grace_period(start):
    cluster = start()
    script = "trap '' TERM; while :; do sleep 0.05; done"
    cluster.run("p", sh("exit 4"), initContainers=[sidecar(script)], terminationGracePeriodSeconds=1)
    assert await cluster.phase("p", "Succeeded", "Failed") == "Failed"
    [status] = cluster.pod("p")["status"]["initContainerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == 137


async def test_deleted_pod_stops_its_sidecar_after_the_training(start, tmp_path):
    cluster = start()
    said, loop = tmp_path / "said", "while :; do sleep 0.05; done"
    beside = sidecar(f"trap 'echo beside >> {said}; exit 0' TERM; {loop}")
    cluster.run(
        "p",
        sh(f"trap 'sleep 0.3; echo main >> {said}; exit 0' TERM; echo up; {loop}"),
        initContainers=[beside],
    )
    await cluster.until(lambda: cluster.log("p") == "up\n", "it runs")
    cluster.store.delete("Pod", "default", "p")
    await cluster.until(lambda: cluster.pod("p") is None, "the pod is gone")
    assert said.read_text() == "main\nbeside\n"
