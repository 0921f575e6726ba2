"""`sweepbot plan`: what a sweep would create, on standard output, as the command prints it."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from bot.__main__ import main
from bot.platform.repos import git_commands
from bot.platform.runtime import log_format
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


@pytest.fixture
def printed(url, monkeypatch, capsys):
    """`await printed(words, **environment)`: the command's exit code, standard output, and standard error."""
    monkeypatch.setattr(log_format, "start", lambda *_: None)  # the tests' own logging stays
    monkeypatch.delenv("SWEEPBOT_CONFIG", raising=False)

    async def run(words=WORDS, **environment):
        monkeypatch.setattr("sys.argv", ["sweepbot", "plan", words, "--repo", url])
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        code = await asyncio.to_thread(main)
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def planned(printed):
    """As `printed`, with the manifests in place of the text."""

    async def run(words=WORDS, **environment):
        code, text, complaints = await printed(words, **environment)
        return code, list(yaml.safe_load_all(text)), complaints

    return run


def pod_of(manifests):
    experiment = next(one for one in manifests if one["kind"] == "Experiment")
    return experiment["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]


def test_space_to_a_reader_that_has_ended_prints_no_error():
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "bot", "space", "explain", "examples/digits/sweeps/lr.yaml"]
    done = subprocess.run(command, cwd=ROOT, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


async def test_plan_without_settings_needs_git_only(planned):
    code, manifests, complaints = await planned()
    assert (code, complaints) == (0, "")
    assert {one["kind"] for one in manifests} == {"ConfigMap", "Job", "Experiment"}
    assert "runtimeClassName" not in pod_of(manifests)


def test_plan_in_a_folder_of_a_repository_names_its_top_directory(monkeypatch, capsys):
    monkeypatch.delenv("SWEEPBOT_CONFIG", raising=False)
    monkeypatch.chdir(ROOT / "examples")
    monkeypatch.setattr("sys.argv", ["sweepbot", "plan", WORDS])
    assert main() == 2
    assert "isn't a git repository's top directory. Run it there" in capsys.readouterr().err


def test_plan_reads_a_repository_of_another_user(repositories, monkeypatch, capsys):
    """As of a container's host, which git distrusts."""
    different = "GIT_TEST_ASSUME_DIFFERENT_OWNER"
    monkeypatch.setattr(git_commands, "PASSED_VARIABLES", (*git_commands.PASSED_VARIABLES, different))
    monkeypatch.setattr(log_format, "start", lambda *_: None)  # the tests' own logging stays
    monkeypatch.setenv(different, "1")
    monkeypatch.delenv("SWEEPBOT_CONFIG", raising=False)
    monkeypatch.setattr("sys.argv", ["sweepbot", "plan", WORDS, "--repo", str(repositories.parent / "work")])
    assert (main(), capsys.readouterr().err) == (0, "")


async def test_plan_with_several_nodes_shows_all_gpus_and_the_service(printed):
    code, text, _ = await printed(f"{WORDS} nodes=4")
    assert code == 0
    assert {one["kind"] for one in yaml.safe_load_all(text)} == {"ConfigMap", "Job", "Service", "Experiment"}
    assert "8 (1 trial × 4 nodes × 2 GPUs)" in text
    assert "one trial runs at a time" in text


async def test_plan_uses_the_configuration(planned, url, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(
        f"repositories: {{other: {{url: https://git.example/other.git}}, digits: {{url: {url}}}}}\n"
        "trials: {runtime_class: nvidia, volumes: [{claim: datasets, at: /data}]}\n"
        "limits: {gpus_per_trial: 2}\n"
    )
    code, manifests, _ = await planned(SWEEPBOT_CONFIG=str(config))
    assert (code, pod_of(manifests)["runtimeClassName"]) == (0, "nvidia")
    code, manifests, complaints = await planned("branch=main gpus=4 space=lr", SWEEPBOT_CONFIG=str(config))
    assert (code, manifests) == (2, [])
    assert "gpus= can be at most" in complaints


async def test_plan_begins_with_a_summary_in_comments(printed, url, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(
        f"repositories: {{digits: {{url: {url}}}}}\n"
        "profiles: {1xh100: {gpus: 1, cpu: 16, memory: 200Gi, nodes: {gpu: h100}}}\n"
        "prices: {NVIDIA H100: 2.5}\n"
        "priorities: {normal: {class: sweeps-normal}}\n"
    )
    code, text, complaints = await printed("branch=main gpus=2 space=lr", SWEEPBOT_CONFIG=str(config))
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


async def test_plan_says_that_one_trial_runs_first(printed):
    _, text, _ = await printed(WORDS)
    comment = next(line for line in text.splitlines() if "maxTrialCount: 1," in line)
    counts = yaml.safe_load_all(text)
    experiment = next(one for one in counts if one["kind"] == "Experiment")
    assert comment.startswith("# The experiment, created when the image is built.")
    assert experiment["spec"]["maxTrialCount"] == 1
    assert text.index(comment) < text.index("kind: Experiment")


async def test_plan_invalid_input_is_one_sentence(planned, tmp_path):
    code, manifests, complaints = await planned("branch=mian space=lr")
    assert (code, manifests) == (2, [])
    assert "Did you mean main?" in complaints
    code, _, complaints = await planned(SWEEPBOT_CONFIG=str(tmp_path / "none"))
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
async def test_plan_shows_the_cluster_and_uses_its_namespace(printed, url, tmp_path, words, line, namespace):
    config = tmp_path / "config.yaml"
    config.write_text(f"repositories: {{digits: {{url: {url}}}}}\n{CLUSTERS}")
    code, text, complaints = await printed(words, SWEEPBOT_CONFIG=str(config))
    assert (code, complaints) == (0, "")
    assert f"# Cluster and namespace: {line}\n" in text
    [experiment] = [each for each in yaml.safe_load_all(text) if each["kind"] == "Experiment"]
    assert experiment["metadata"]["namespace"] == namespace


async def test_plan_refuses_a_cluster_that_cannot_pull_the_image(printed, url, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(f"repositories: {{digits: {{url: {url}}}}}\n{CLUSTERS}")
    code, _, complaints = await printed(f"{WORDS} cluster=main", SWEEPBOT_CONFIG=str(config))
    assert code == 2
    assert "cluster=main: its nodes can't pull from" in complaints


async def test_plan_of_train_jobs_prints_the_runtime_with_their_pods(planned, url, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(f"trials: {{multi_node: trainjob}}\nrepositories: {{digits: {{url: {url}}}}}\n")
    code, manifests, _ = await planned(f"{WORDS} nodes=2", SWEEPBOT_CONFIG=str(file))
    by_kind = {each["kind"]: each for each in manifests}
    job = by_kind["Experiment"]["spec"]["trialTemplate"]["trialSpec"]
    runtime = by_kind["TrainingRuntime"]
    assert (code, "Service" in by_kind) == (0, False)
    assert job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]
    [node] = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    [training] = node["template"]["spec"]["template"]["spec"]["containers"]
    assert training["resources"]["limits"] == {"nvidia.com/gpu": 2}
