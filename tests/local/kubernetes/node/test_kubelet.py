"""What happens to a pod on the nodes of the local world until it ends by itself."""

import json

import pytest

from local.kubernetes.node.container_inputs import expand
from tests.local.kubernetes.node.pods import PYTHON, gpu, sh


async def test_pod_runs_and_succeeds_or_has_no_such_command(start):
    cluster = start()
    cluster.run("hello", sh("echo one; echo two; echo three >&2; printf done > /dev/termination-log"))
    await cluster.phase("hello", "Succeeded")
    ended = cluster.state("hello")["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (0, "Completed", "done")
    assert cluster.log("hello") == "one\ntwo\nthree\n"
    assert cluster.log("hello", tail=1) == "three\n"
    reasons = [reason for reason, _ in cluster.events("hello")]
    assert set(reasons) == {"Scheduled", "Pulling", "Pulled", "Created", "Started"}
    cluster.run("typo", {"name": "main", "image": PYTHON, "command": ["pyhton", "train.py"]})
    await cluster.phase("typo", "Failed")
    ended = cluster.state("typo")["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["startedAt"]) == (
        128,
        "StartError",
        "1970-01-01T00:00:00Z",
    )
    assert ended["message"].endswith('exec: "pyhton": executable file not found in $PATH')
    env = [
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "TEAM", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['team']"}}},
        {"name": "BOTH", "value": "$(POD)-$(TEAM) $(NOPE) $$(POD) $HOME"},
    ]
    cluster.run("env", sh('echo "$BOTH|$(TEAM)|$$(echo sub)"', env=env))
    await cluster.phase("env", "Succeeded")
    assert cluster.log("env") == "env-vision $(NOPE) $(POD) $HOME|vision|sub\n"


@pytest.mark.parametrize(
    ("script", "code"), [("exit 3", 3), ("kill -9 $$", 137), ("kill -TERM $$", 143), ("nonsense", 127)]
)
async def test_pod_with_a_failing_command_fails(script, code, start):
    cluster = start()
    cluster.run("bad", sh(script.replace("$$", "$$$$")))
    await cluster.phase("bad", "Failed")
    ended = cluster.state("bad")["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (code, "Error")


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "1"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$.pid", "$$.pid"),
        ("$(B) $A ${A} $", "$(B) $A ${A} $"),
        ("$(A", "$(A"),
    ],
)
def test_expand_resolves_dollar_references(text, expanded):
    assert expand(text, {"A": "1"}) == expanded


async def test_secret_and_shared_volumes_are_seen_by_containers(start):
    cluster = start()
    source = {"secretKeyRef": {"name": "git", "key": "token"}}
    items = [{"key": "token", "path": "config.json"}]
    volumes = [{"name": "login", "secret": {"secretName": "git", "items": items}}]
    mounts = [{"name": "login", "mountPath": "/kaniko/.docker"}]
    env = [{"name": "TOKEN", "valueFrom": source}]
    main = sh("echo $TOKEN && cat /kaniko/.docker/config.json", env=env, volumeMounts=mounts)
    cluster.run("build", main, volumes=volumes)
    missing = 'MountVolume.SetUp failed for volume "login" : secret "git" not found'
    await cluster.until(lambda: ("FailedMount", missing) in cluster.events("build"), "the event is recorded")
    meta = {"name": "git", "namespace": "default"}
    cluster.store.create(
        {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"token": "x"}}
    )
    await cluster.phase("build", "Succeeded")
    assert cluster.log("build") == "x\nx"
    meta = {"name": "gen", "namespace": "default"}
    cluster.store.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a.txt": "hi"}})
    volumes = [{"name": "gen", "configMap": {"name": "gen"}}, {"name": "out", "emptyDir": {}}]
    mounts = [{"name": "gen", "mountPath": "/gen"}, {"name": "out", "mountPath": "/var/log/katib/tfevent/"}]
    write = sh("cat /gen/a.txt > /var/log/katib/tfevent/$$$$.pid", volumeMounts=mounts)
    wait = "until grep -h . /out/*.pid 2>/dev/null; do sleep 0.05; done"
    read = sh(wait, "reader", volumeMounts=[{"name": "out", "mountPath": "/out"}])
    cluster.run("share", write, read, volumes=volumes)
    await cluster.phase("share", "Succeeded")
    assert cluster.log("share", "reader") == "hi\n"


async def test_downward_api_writes_annotations_to_files(start):
    cluster = start()
    field = {"fieldPath": "metadata.labels['team']"}
    volumes = [{"name": "made", "downwardAPI": {"items": [{"path": "Dockerfile", "fieldRef": field}]}}]
    mounts = [{"name": "made", "mountPath": "/sweepbot"}]
    cluster.run("build", sh("cat /sweepbot/Dockerfile", volumeMounts=mounts), volumes=volumes)
    await cluster.phase("build", "Succeeded")
    assert cluster.log("build") == "vision"


async def test_volumes_and_secrets_are_mounted_once_they_are_there(start):
    cluster = start()
    cluster.run("build", sh("true"), volumes=[{"name": "gen", "configMap": {"name": "gen"}}])
    missing = 'MountVolume.SetUp failed for volume "gen" : configmap "gen" not found'
    await cluster.until(lambda: ("FailedMount", missing) in cluster.events("build"), "the event is recorded")
    meta = {"name": "gen", "namespace": "default"}
    cluster.store.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
    await cluster.phase("build", "Succeeded")
    source = {"secretKeyRef": {"name": "absent", "key": "token", "optional": True}}
    cluster.run("train", sh("echo ${TOKEN-unset}", env=[{"name": "TOKEN", "valueFrom": source}]))
    await cluster.phase("train", "Succeeded")
    assert cluster.log("train") == "unset\n"
    source = {"configMapKeyRef": {"name": "git", "key": "token"}}
    cluster.run("env", sh("echo $TOKEN", env=[{"name": "TOKEN", "valueFrom": source}]))
    waiting = await cluster.waiting_for("env", "CreateContainerConfigError")
    assert waiting["message"] == "the local nodes know no configMapKeyRef"
    cluster.run("disk", sh("true"), volumes=[{"name": "disk", "hostPath": {"path": "/"}}])
    message = 'MountVolume.SetUp failed for volume "disk" : the local nodes mount no hostPath in this way'
    await cluster.until(lambda: ("FailedMount", message) in cluster.events("disk"), "the event is recorded")
    cluster.run("there", sh("true"), nodeSelector={"kubernetes.io/hostname": "gpu-2"})
    cluster.run("nowhere", sh("true"), nodeSelector={"kubernetes.io/hostname": "gpu-3"})
    await cluster.phase("there", "Succeeded")
    assert cluster.pod("there")["spec"]["nodeName"] == "gpu-2"
    await cluster.until(lambda: cluster.events("nowhere"), "the scheduler has looked at it")
    assert "2 node(s) didn't match Pod's node affinity/selector" in cluster.events("nowhere")[0][1]


async def test_missing_image_is_pulled_repeatedly(start, images):
    cluster = start(registry=images.address)
    name = f"{images.address}/exp/vision:abc"
    cluster.run("lost", sh("true", image=name))
    waiting = await cluster.waiting_for("lost", "ImagePullBackOff")
    why = (
        f'rpc error: code = NotFound desc = failed to pull and unpack image "{name}": '
        f'failed to resolve reference "{name}": {name}: not found'
    )
    assert waiting["message"] == f'Back-off pulling image "{name}": ErrImagePull: {why}'
    assert cluster.pod("lost")["status"]["phase"] == "Pending"
    assert {
        ("Pulling", f'Pulling image "{name}"'),
        ("Failed", f'Failed to pull image "{name}": {why}'),
        ("Failed", "Error: ErrImagePull"),
        ("BackOff", f'Back-off pulling image "{name}"'),
        ("Failed", "Error: ImagePullBackOff"),
    } <= set(cluster.events("lost"))


async def test_built_image_runs_with_its_settings(start, images, kaniko, origin):
    script = "import os; print(os.environ['LEVEL'], open('data.txt').read(), open('/app/data.txt').read())"
    files = {"train.py": script.replace("open('/app/data.txt').read()", "os.path.basename(os.getcwd())")}
    dockerfile = (
        'FROM python:3.11-slim\nENV LEVEL=3\nWORKDIR /app\nCOPY . .\nCMD ["python", "/app/train.py"]\n'
    )
    commit = origin.commit(files | {"data.txt": "data", "Dockerfile": dockerfile})
    assert (await kaniko(commit, to="exp/vision:1")).code == 0
    cluster = start(registry=images.address)
    cluster.run("train", {"name": "main", "image": f"{images.address}/exp/vision:1"})
    await cluster.phase("train", "Succeeded", "Failed")
    assert cluster.log("train") == "3 data app\n"


async def test_pod_of_kaniko_reports_the_digest_as_its_message(start, images, git_host, origin):
    commit = origin.commit({"Dockerfile": "FROM scratch\nCOPY . /app\n"})
    cluster = start(registry=images.address)
    args = [
        f"--context=git://{git_host.url.removeprefix('http://')}/team/code.git#refs/heads/main#{commit}",
        f"--destination={images.address}/code:1",
        f"--insecure-registry={images.address}",
        "--digest-file=/dev/termination-log",
    ]
    env = [{"name": "GIT_PULL_METHOD", "value": "http"}]
    image = "ghcr.io/osscontainertools/kaniko:v1.28.3"
    cluster.run("build", {"name": "kaniko", "image": image, "args": args, "env": env})
    await cluster.phase("build", "Succeeded", "Failed")
    digest = cluster.state("build")["terminated"]["message"]
    assert f"Pushed {images.address}/code@{digest}" in cluster.log("build", "kaniko")


async def test_pods_wait_for_gpus_until_others_finish(start):
    cluster = start(nodes={"gpu-1": 1, "gpu-2": 1})
    for name in ("one", "two"):
        cluster.run(name, sh("until [ -e /tmp/nothing-here ]; do sleep 0.05; done", **gpu(1)))
        await cluster.phase(name, "Running")
    cluster.run("three", sh("true", **gpu(1)))

    def unschedulable() -> dict | None:
        return next(iter(cluster.pod("three")["status"].get("conditions", [])), None)

    condition = await cluster.until(unschedulable, "the scheduler has looked at it")
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert condition["message"] == (
        "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. preemption: "
        "0/2 nodes are available: 2 No preemption victims found for incoming pod."
    )
    assert ("FailedScheduling", condition["message"]) in cluster.events("three")
    cluster.store.delete("Pod", "default", "one", grace=0)
    await cluster.phase("three", "Succeeded")


async def test_pod_waiting_for_its_image_has_its_gpus(start):
    cluster = start(nodes={"gpu-1": 1})
    cluster.run("lost", sh("true", image="nowhere:5000/x:1", **gpu(1)))
    await cluster.waiting_for("lost", "ImagePullBackOff")
    cluster.run("next", sh("true", **gpu(1)))
    await cluster.until(lambda: cluster.events("next"), "the scheduler has looked at it")
    assert cluster.events("next")[0][0] == "FailedScheduling"


async def test_containers_start_in_order_without_waiting_for_failing_pulls(start):
    """While an image can't be pulled, the containers after it run, and don't see the first one."""
    seen = []

    async def looks(_pod, _container, _volumes, _log, siblings):
        seen.append(set(siblings))
        return 0

    cluster = start(builtins={"looks": looks})
    last = {"name": "last", "image": "looks"}
    cluster.run("never", sh("true", image="127.0.0.1:1/none:1"), last)
    cluster.run("well", sh("true"), last)
    await cluster.until(lambda: cluster.state("never", 1).get("terminated"), "the second one ends")
    await cluster.phase("well", "Succeeded")
    assert cluster.state("never")["waiting"]["reason"] in {"ErrImagePull", "ImagePullBackOff"}
    assert sorted(seen, key=len) == [set(), {"main"}]


async def test_builtin_container_sees_the_others_end(start):
    async def collect(pod, container, volumes, log, siblings):
        codes = {name: await code for name, code in siblings.items()}
        log(json.dumps([codes, container["name"], (volumes["out"] / "x").read_text()]))
        return 0

    cluster = start(builtins={"katib/tfevent-metrics-collector": collect})
    mounts = [{"name": "out", "mountPath": "/out"}]
    image = "ghcr.io/kubeflow/katib/tfevent-metrics-collector:latest"
    collector = {"name": "metrics-collector", "image": image, "volumeMounts": mounts}
    main = sh("printf x > /out/x; exit 4", volumeMounts=mounts)
    cluster.run("trial", main, collector, volumes=[{"name": "out", "emptyDir": {}}])
    await cluster.phase("trial", "Failed")
    assert json.loads(cluster.log("trial", "metrics-collector")) == [{"main": 4}, "metrics-collector", "x"]
    assert cluster.state("trial", 1)["terminated"]["exitCode"] == 0


async def test_init_container_runs_first_and_alone(start):
    cluster = start()
    fetch = sh("echo fetched > /data/file", "fetch", volumeMounts=[{"name": "data", "mountPath": "/data"}])
    main = sh("cat /data/file", volumeMounts=[{"name": "data", "mountPath": "/data"}])
    cluster.run("p", main, initContainers=[fetch], volumes=[{"name": "data", "emptyDir": {}}])
    assert await cluster.phase("p", "Succeeded", "Failed") == "Succeeded"
    assert cluster.log("p") == "fetched\n"
    (status,) = cluster.pod("p")["status"]["initContainerStatuses"]
    assert (status["name"], status["state"]["terminated"]["exitCode"]) == ("fetch", 0)


async def test_init_container_that_fails_fails_its_pod(start):
    cluster = start()
    cluster.run("p", sh("echo never"), initContainers=[sh("echo no; exit 3", "fetch")])
    assert await cluster.phase("p", "Succeeded", "Failed") == "Failed"
    assert cluster.state("p") == {"waiting": {"reason": "PodInitializing"}}
    assert (cluster.log("p", "fetch"), cluster.log("p")) == ("no\n", "")
