"""`sweepbot plan`: what a sweep would create, on standard output, as the command prints it."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from local import git_server
from local.world import publish

ROOT = Path(__file__).parents[2]
WORDS = "branch=main gpus=2 space=lr"


@pytest.fixture(scope="module")
def repositories(tmp_path_factory):
    """A directory with one repository, which a plan only reads."""
    folder = tmp_path_factory.mktemp("plan")
    publish(ROOT / "examples" / "digits", folder / "work", folder / "git" / "digits.git")
    return folder / "git"


@pytest.fixture
async def url(repositories):
    host = await git_server.serve(repositories)
    yield f"{host.url}/digits.git"
    await host.close()


async def planned(url, words=WORDS, **environment):
    """Return the exit code, the manifests, and standard error."""
    code, text, complaints = await printed(url, words, **environment)
    return code, list(yaml.safe_load_all(text)), complaints


async def printed(url, words, **environment):
    """Return the exit code, standard output, and standard error."""
    command = [sys.executable, "-m", "bot", "plan", words, "--repo", url]
    known = {name: value for name, value in os.environ.items() if name != "SWEEPBOT_CONFIG"}
    made = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, env=known | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    message, complaints = await made.communicate()
    return made.returncode, message.decode(), complaints.decode()


def pod_of(manifests):
    experiment = next(one for one in manifests if one["kind"] == "Experiment")
    return experiment["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]


async def test_plan_without_settings_needs_git_only(url):
    code, manifests, complaints = await planned(url)
    assert (code, complaints) == (0, "")
    assert {one["kind"] for one in manifests} == {"ConfigMap", "Job", "Experiment"}
    assert "runtimeClassName" not in pod_of(manifests)


async def test_plan_with_several_nodes_shows_all_gpus_and_the_service(url):
    code, text, _ = await printed(url, f"{WORDS} nodes=4")
    assert code == 0
    assert {one["kind"] for one in yaml.safe_load_all(text)} == {"ConfigMap", "Job", "Service", "Experiment"}
    assert "8 (1 trial × 4 nodes × 2 GPUs)" in text
    assert "one trial runs at a time" in text


async def test_plan_uses_the_configuration(url, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(
        f"repositories: {{other: {{url: https://git.example/other.git}}, digits: {{url: {url}}}}}\n"
        "trials: {runtime_class: nvidia, volumes: [{claim: datasets, at: /data}]}\n"
        "limits: {gpus_per_trial: 2}\n"
    )
    code, manifests, _ = await planned(url, SWEEPBOT_CONFIG=str(config))
    assert (code, pod_of(manifests)["runtimeClassName"]) == (0, "nvidia")
    code, manifests, complaints = await planned(
        url, "branch=main gpus=4 space=lr", SWEEPBOT_CONFIG=str(config)
    )
    assert (code, manifests) == (2, [])
    assert "gpus= can be at most" in complaints


async def test_plan_begins_with_a_summary_in_comments(url, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(
        f"repositories: {{digits: {{url: {url}}}}}\n"
        "profiles: {1xh100: {gpus: 1, cpu: 16, memory: 200Gi, nodes: {gpu: h100}}}\n"
        "prices: {NVIDIA H100: 2.5}\n"
        "priorities: {normal: {class: sweeps-normal}}\n"
    )
    code, text, complaints = await printed(url, "branch=main gpus=2 space=lr", SWEEPBOT_CONFIG=str(config))
    assert (code, complaints) == (0, "")
    head = text.partition("\n\n")[0]
    assert all(line.startswith("# ") for line in head.splitlines())
    assert head.startswith("# lr on main @ ")
    for fact in (
        "# Trials:",
        "1xh100: 2 GPUs, 32 CPUs, and 400 GiB of memory per trial",
        "# Peak GPUs:",
        "# GPU-hours:   Up to 6 ($15",
        "# Priority:    normal",
        "# Builds:      2 Jobs; the image is ",
    ):
        assert fact in head
    assert not set("*`") & set(head)
    assert pod_of([*yaml.safe_load_all(text)])["nodeSelector"] == {"gpu": "h100"}


async def test_plan_says_that_one_trial_runs_first(url):
    _, text, _ = await printed(url, WORDS)
    comment = next(line for line in text.splitlines() if "maxTrialCount: 1," in line)
    counts = yaml.safe_load_all(text)
    experiment = next(one for one in counts if one["kind"] == "Experiment")
    assert comment.startswith("# The experiment, created when the image is built.")
    assert experiment["spec"]["maxTrialCount"] == 1
    assert text.index(comment) < text.index("kind: Experiment")


async def test_plan_invalid_input_is_one_sentence(url, tmp_path):
    code, manifests, complaints = await planned(url, "branch=mian space=lr")
    assert (code, manifests) == (2, [])
    assert "Did you mean main?" in complaints
    code, _, complaints = await planned(url, SWEEPBOT_CONFIG=str(tmp_path / "none"))
    assert (code, "can't be read" in complaints) == (2, True)


CLUSTERS = """
clusters:
  main: {registries: [other.example]}
  west: {kubeconfig: /etc/sweepbot-clusters/west, namespace: west-sweeps}
  east: {kubeconfig: /etc/sweepbot-clusters/east}
"""


@pytest.mark.parametrize(
    ("words", "line", "namespace"),
    [
        (WORDS, "west (in these manifests; chosen at launch), west-sweeps", "west-sweeps"),
        (f"{WORDS} cluster=west", "west, west-sweeps", "west-sweeps"),
        (f"{WORDS} cluster=east", "east, sweeps", "sweeps"),
    ],
)
async def test_plan_shows_the_cluster_and_uses_its_namespace(url, tmp_path, words, line, namespace):
    config = tmp_path / "config.yaml"
    config.write_text(f"repositories: {{digits: {{url: {url}}}}}\n{CLUSTERS}")
    code, text, complaints = await printed(url, words, SWEEPBOT_CONFIG=str(config))
    assert (code, complaints) == (0, "")
    assert f"# Cluster and namespace: {line}\n" in text
    [experiment] = [each for each in yaml.safe_load_all(text) if each["kind"] == "Experiment"]
    assert experiment["metadata"]["namespace"] == namespace


async def test_plan_refuses_a_cluster_that_cannot_pull_the_image(url, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(f"repositories: {{digits: {{url: {url}}}}}\n{CLUSTERS}")
    code, _, complaints = await printed(url, f"{WORDS} cluster=main", SWEEPBOT_CONFIG=str(config))
    assert code == 2
    assert "cluster=main: its nodes can't pull from" in complaints
