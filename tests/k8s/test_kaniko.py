"""Build Jobs: what they build, what they can access, and what they never contain."""

import json
from dataclasses import replace

import pytest

from k8s.kaniko import DOCKERFILE_KEY, FETCHING, IGNORE_KEY, BuildSpec, build_job, pushed_digest, with_base
from local.kubernetes.node.container_inputs import expand
from tests.cases import cases

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OWN = BuildSpec(
    name="build-digits-0123456789ab-cafe0123",
    namespace="sweeps",
    repo_url="https://git.example/digits.git",
    ref="refs/heads/main",
    commit=COMMIT,
    dockerfile="docker/Dockerfile",
    own_dockerfile=True,
    destination="registry:5000/sweepbot/digits:tag",
    cache=True,
    executor="kaniko:v1",
)
GENERATED = replace(OWN, dockerfile="FROM python\n", own_dockerfile=False, ignore=".git\n", cache=False)
CODE = replace(GENERATED, dockerfile="FROM scratch\nCOPY . /app\n", code_only=True)


def pod(spec):
    return build_job(spec)["spec"]["template"]["spec"]


def container(spec):
    (found,) = pod(spec)["containers"]
    return found


def test_job_builds_the_repositorys_dockerfile_with_cache():
    assert container(OWN)["args"] == [
        f"--context=git://git.example/digits.git#refs/heads/main#{COMMIT}",
        "--git=single-branch=true",
        "--dockerfile=docker/Dockerfile",
        "--destination=registry:5000/sweepbot/digits:tag",
        "--snapshot-mode=redo",
        "--use-new-run",
        "--image-format=docker",
        "--digest-file=/dev/termination-log",
        "--push-retry=3",
        "--image-download-retry=3",
        "--image-fs-extract-retry=1",
        "--cache=true",
        "--cache-repo=registry:5000/sweepbot/digits",
        "--cache-ttl=8760h",
        "--compressed-caching=false",
    ]
    assert container(OWN)["env"] == []


def test_job_mounts_a_generated_dockerfile():
    template = build_job(GENERATED)["spec"]["template"]
    assert template["metadata"]["annotations"] == {DOCKERFILE_KEY: "FROM python\n", IGNORE_KEY: ".git\n"}
    assert "--dockerfile=/sweepbot/Dockerfile" in container(GENERATED)["args"]
    (volume,) = pod(GENERATED)["volumes"]
    paths = {item["path"]: item["fieldRef"]["fieldPath"] for item in volume["downwardAPI"]["items"]}
    assert paths == {
        "Dockerfile": "metadata.annotations['sweepbot/dockerfile']",
        "Dockerfile.dockerignore": "metadata.annotations['sweepbot/dockerignore']",
    }
    assert not any(argument.startswith("--cache") for argument in container(GENERATED)["args"])


def test_job_of_code_is_small_and_reproducible():
    assert "--reproducible" in container(CODE)["args"]
    assert container(CODE)["resources"]["requests"]["memory"] == "128Mi"


def test_job_sets_plain_http_for_git_and_registry_separately():
    assert container(replace(OWN, plain_http=("push:5000", "pull:5000")))["args"][-2:] == [
        "--insecure-registry=push:5000",
        "--insecure-registry=pull:5000",
    ]
    plain = container(replace(OWN, repo_url="http://git.local/digits.git"))
    assert plain["env"] == [{"name": "GIT_PULL_METHOD", "value": "http"}]


def test_job_trusts_company_certificates_beside_public_ones():
    spec = replace(OWN, ca="company-ca")
    assert {"name": "ca", "configMap": {"name": "company-ca"}} in pod(spec)["volumes"]
    assert {"name": "ca", "mountPath": "/kaniko/ca", "readOnly": True} in container(spec)["volumeMounts"]
    assert container(spec)["env"] == [{"name": "SSL_CERT_DIR", "value": "/kaniko/ssl/certs:/kaniko/ca"}]


def test_job_protects_branch_names_from_variable_expansion():
    branch = "refs/heads/$(GIT_PASSWORD)-$$-$HOME"
    known = {"GIT_PASSWORD": "hunter2"}
    sent = [expand(word, known) for word in container(replace(OWN, ref=branch))["args"]]
    assert sent[0] == f"--context=git://git.example/digits.git#{branch}#{COMMIT}"


def test_job_without_repository_files_does_not_clone():
    arguments = container(replace(GENERATED, alone=True, submodules=True))["args"]
    assert arguments[:2] == ["--context=/sweepbot", "--dockerfile=/sweepbot/Dockerfile"]
    assert not any("git" in argument.partition("--destination=")[0] for argument in arguments)


def test_job_clones_submodules_if_present():
    assert "--git=recurse-submodules=true" in container(replace(OWN, submodules=True))["args"]


def test_job_passes_git_credentials_only_to_the_clone():
    for spec in (OWN, GENERATED):
        made = pod(replace(spec, git_secret="git-digits", registry_secret="registry-login", submodules=True))
        (fetch,), (build,) = made["initContainers"], made["containers"]
        assert fetch["args"] == [
            f"--context=git://git.example/digits.git#refs/heads/main#{COMMIT}",
            "--git=single-branch=true",
            "--git=recurse-submodules=true",
            "--dockerfile=/sweepbot/Fetch",
            "--no-push",
        ]
        assert [variable["name"] for variable in fetch["env"]] == ["GIT_USERNAME", "GIT_PASSWORD"]
        assert build["env"] == []
        assert build["args"][0] == "--context=/kaniko/buildcontext"
        mounts = [
            {m["name"]: m.get("readOnly", False) for m in each["volumeMounts"]} for each in (fetch, build)
        ]
        assert mounts == [
            {"generated": True, "context": False},
            {"generated": True, "registry": True, "context": False},
        ]
        assert fetch["securityContext"] == build["securityContext"]
    annotations = build_job(replace(OWN, git_secret="x"))["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {FETCHING: "FROM scratch\n"}, "nothing is built there"


def test_job_pushes_by_the_identity_of_a_service_account():
    template = build_job(replace(GENERATED, service_account="pusher"))["spec"]["template"]
    assert template["spec"]["serviceAccountName"] == "pusher"
    assert template["spec"]["automountServiceAccountToken"] is False, "no access to the cluster"
    assert template["metadata"]["labels"]["azure.workload.identity/use"] == "true"
    assert "serviceAccountName" not in pod(GENERATED)


def test_job_gets_proxies_and_indexes_from_a_secret_that_it_doesnt_contain():
    """Kaniko resolves --build-arg=NAME from its environment, and leaves mounts out of layers."""
    made = pod(replace(OWN, git_secret="git-digits", network_secret="build-network"))
    names = ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"]
    for each in (*made["initContainers"], *made["containers"]):
        found = {
            v["name"]: v["valueFrom"]["secretKeyRef"] for v in each["env"] if "proxy" in v["name"].lower()
        }
        assert found == {
            name: {"name": "build-network", "key": name.upper(), "optional": True} for name in names
        }, "the clone, and pulls of base images"
    (build,) = made["containers"]
    assert [a for a in build["args"] if "build-arg" in a] == [f"--build-arg={name}" for name in names]
    mounted = {m["mountPath"]: m["name"] for m in build["volumeMounts"] if m["name"] == "network"}
    assert mounted == dict.fromkeys(("/etc/xdg/pip", "/etc/xdg/uv", "/etc/conda/condarc.d"), "network")
    volumes = [volume for volume in made["volumes"] if volume["name"] == "network"]
    assert volumes == [{"name": "network", "secret": {"secretName": "build-network"}}], "it has to exist"
    (code,) = pod(replace(CODE, network_secret="build-network"))["containers"]
    assert not any("build-arg" in a for a in code["args"]), "it runs nothing"
    assert len(code["env"]) == len(names), "and clones and pushes by the proxy"
    assert "network" not in {m["name"] for m in code["volumeMounts"]}


def test_job_references_credentials_without_containing_them():
    job = build_job(replace(CODE, git_secret="git-digits", registry_secret="registry-login"))
    (one,) = job["spec"]["template"]["spec"]["containers"]
    assert one["env"] == [
        {"name": "GIT_USERNAME", "valueFrom": {"secretKeyRef": {"name": "git-digits", "key": "username"}}},
        {"name": "GIT_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "git-digits", "key": "password"}}},
    ]
    assert one["volumeMounts"][-1] == {"name": "registry", "mountPath": "/kaniko/.docker", "readOnly": True}
    items = [{"key": ".dockerconfigjson", "path": "config.json"}]
    secret = {"name": "registry", "secret": {"secretName": "registry-login", "items": items}}
    assert job["spec"]["template"]["spec"]["volumes"][-1] == secret
    assert "@" not in json.dumps(one["args"])


@pytest.mark.parametrize("spec", [OWN, GENERATED, CODE])
def test_job_has_minimal_permissions(spec):
    """Pod Security "baseline", and less."""
    job = build_job(spec)["spec"]
    assert (job["backoffLimit"], job["activeDeadlineSeconds"], job["ttlSecondsAfterFinished"]) == (
        0,
        1800,
        3600,
    )
    assert pod(spec)["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod(spec).keys()
    assert {next(k for k in v if k != "name") for v in pod(spec)["volumes"]} <= {"downwardAPI", "secret"}
    security = container(spec)["securityContext"]
    assert security["allowPrivilegeEscalation"] is False
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert security["capabilities"] == {
        "drop": ["ALL"],
        "add": ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"],
    }
    assert {"memory", "ephemeral-storage"} == container(spec)["resources"]["limits"].keys()


DIGEST = f"sha256:{'a' * 64}"
MADE = build_job(OWN)
MADE["metadata"]["uid"] = "u1"


def a_pod(message=DIGEST, code=0, owner="u1"):
    over = {"exitCode": code, "reason": "Completed", "message": message}
    return {
        "metadata": {"name": "p", "ownerReferences": [{"kind": "Job", "uid": owner}]},
        "status": {"containerStatuses": [{"name": "kaniko", "state": {"terminated": over}}]},
    }


@cases(
    ("pods", "pushed"),
    [
        ([a_pod()], DIGEST),
        ([a_pod(code=1), a_pod()], DIGEST),
        ([a_pod(code=1)], None),
        ([a_pod(owner="another")], None),
        ([a_pod(message="")], None),
        ([a_pod(message=f"{DIGEST}\n{DIGEST}")], None),
        ([a_pod(message="sha256:../../x")], None),
        ([{"metadata": {"name": "p"}, "status": {}}], None),
        ([], None),
    ],
)
def test_digest_is_reported_by_the_jobs_own_successful_pod(pods, pushed):
    assert pushed_digest(MADE, pods, OWN.destination) == pushed


def test_job_with_another_destination_is_another_build():
    assert pushed_digest(MADE, [a_pod()], "registry:5000/sweepbot/digits:other") is None


def test_with_base_uses_the_digest():
    text = "FROM r/sweepbot/dependencies:heavy-0a\nRUN echo :heavy-0a\n"
    job = build_job(replace(GENERATED, dockerfile=text))
    made = with_base(job, "heavy-0a", DIGEST)["spec"]["template"]["metadata"]["annotations"][DOCKERFILE_KEY]
    assert made.startswith(f"FROM r/sweepbot/dependencies@{DIGEST}\n")
