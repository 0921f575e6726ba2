"""The objects of an environment: their security, their volumes, and how their server is reached."""

import json

import pytest

from k8s.environments import (
    CODE_SERVER,
    JUPYTER,
    EnvironmentSpec,
    claim,
    ingress,
    secret,
    service,
    stateful_set,
)

SPEC = {"name": "lab", "namespace": "environments", "owner": "U1", "image": "registry/jupyter:1"}
SPEC |= {"cpu": "2", "memory": "8Gi", "gpus": 0, "home": "lab"}


def spec(server=JUPYTER, **changes):
    return EnvironmentSpec(**SPEC | {"server": server} | changes)


def pod_of(found):
    return stateful_set(found, "{}")["spec"]["template"]["spec"]


def test_pod_satisfies_pod_security_restricted_and_has_no_token():
    pod = pod_of(spec())
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)


@pytest.mark.parametrize(("server", "group"), [(JUPYTER, 100), (CODE_SERVER, 1000)])
def test_files_of_a_large_home_are_not_changed_at_each_start(server, group):
    security = pod_of(spec(server))["securityContext"]
    assert (security["fsGroup"], security["fsGroupChangePolicy"]) == (group, "OnRootMismatch")


def test_shared_memory_is_a_quarter_of_the_memory_limit():
    pod = pod_of(spec())
    [shm] = [each["emptyDir"] for each in pod["volumes"] if each["name"] == "shm"]
    assert shm == {"medium": "Memory", "sizeLimit": str(2 * 2**30)}
    assert pod["containers"][0]["resources"]["limits"] == {"memory": "8Gi"}


def test_stateful_set_starts_without_a_pod_and_can_replace_a_broken_one():
    found = stateful_set(spec(), "{}")["spec"]
    assert found["replicas"] == 0
    assert (found["podManagementPolicy"], found["updateStrategy"]) == ("Parallel", {"type": "OnDelete"})
    assert "volumeClaimTemplates" not in found


def test_everything_but_the_home_is_deleted_with_the_stateful_set():
    for build in (service, ingress):
        [owner] = build(spec(host="lab.env.example"), "uid-1")["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("StatefulSet", "uid-1")
    assert secret(spec(), "uid-1", "x")["metadata"]["ownerReferences"][0]["uid"] == "uid-1"
    assert "ownerReferences" not in claim("environments", "lab", "U1", "20Gi")["metadata"]


def test_credentials_are_only_in_the_secret():
    pod = json.dumps(stateful_set(spec(), "{}"))
    assert "t0p-secret" not in pod
    assert secret(spec(), "uid-1", "t0p-secret")["stringData"] == {"login": "t0p-secret"}
    variables = {each["name"]: each for each in pod_of(spec())["containers"][0]["env"]}
    assert variables["JUPYTER_TOKEN"]["valueFrom"]["secretKeyRef"] == {"name": "env-lab", "key": "login"}


@pytest.mark.parametrize(
    ("server", "path", "probe"),
    [(JUPYTER, "/", "/api"), (JUPYTER, "/lab/", "/lab/api"), (CODE_SERVER, "/", "/healthz")],
)
def test_server_is_ready_below_its_own_path(server, path, probe):
    [container] = pod_of(spec(server, path=path))["containers"]
    assert container["readinessProbe"]["httpGet"] == {"path": probe, "port": server.port}


def test_jupyter_gets_the_path_of_its_url():
    variables = {
        each["name"]: each.get("value") for each in pod_of(spec(path="/lab/"))["containers"][0]["env"]
    }
    assert variables["NOTEBOOK_ARGS"] == "--ServerApp.base_url=/lab/"
    [container] = pod_of(spec(path="/lab/", command=("jupyter", "lab")))["containers"]
    assert "--ServerApp.base_url=/lab/" in container["args"]
    [rule] = ingress(spec(path="/lab/", host="env.example"), "uid-1")["spec"]["rules"]
    assert (rule["host"], rule["http"]["paths"][0]["path"]) == ("env.example", "/lab/")


def test_environment_without_gpus_sees_none():
    variables = {each["name"]: each.get("value") for each in pod_of(spec())["containers"][0]["env"]}
    assert variables["NVIDIA_VISIBLE_DEVICES"] == "void"
    [container] = pod_of(spec(gpus=2))["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert "NVIDIA_VISIBLE_DEVICES" not in {each["name"] for each in container["env"]}
