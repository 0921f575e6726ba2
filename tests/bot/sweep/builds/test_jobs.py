"""From files to Jobs and tags: the same files give one Job with one name for all sweeps."""

import json
from dataclasses import replace

import pytest

from bot.core.plan import Role
from bot.platform.config.repositories import Repository
from bot.platform.config.settings import PlanSettings
from bot.sweep.launch.plan import plan
from tests.bot.factories import COMMIT, ORDER, PLAN, REPOSITORY, SETTINGS, SOURCE
from tests.bot.sweep.builds.projects import PROJECT, UV, WITH_TORCH


def planned(files, settings=SETTINGS, **source):
    return plan(replace(ORDER, source=replace(SOURCE, files=files, **source)), settings)


def test_builds_share_what_is_equal():
    other = replace(ORDER, sweep="lr-calm-fox", owner="UOTHER")
    assert plan(other, SETTINGS).builds == PLAN.builds
    (build,) = PLAN.builds
    assert (build.role, build.repository, build.tag) == (Role.IMAGE, "sweepbot/digits", PLAN.image_tag)
    assert build.tag.startswith(f"{COMMIT}-")
    made = planned(UV)
    dependencies, code = made.builds
    assert (dependencies.repository, code.repository) == ("sweepbot/dependencies", "sweepbot/digits")
    assert code.tag.startswith(f"code-{COMMIT}-")
    assert made.image_tag.startswith(f"{COMMIT}-")
    fork = planned(UV, repository=Repository(name="fork", url="https://git.example/fork.git"))
    assert fork.builds[0].tag == dependencies.tag
    assert fork.builds[0].ref == dependencies.ref, "the second sweep joins the first one's builds"
    assert fork.builds[1].ref != code.ref
    before, after = planned(UV), planned(UV, commit="f" * 40)
    assert before.builds[0].tag == after.builds[0].tag
    assert before.builds[1].tag != after.builds[1].tag
    heavy, dependencies, code = planned({"pyproject.toml": PROJECT, "uv.lock": WITH_TORCH}).builds
    assert (heavy.needs, dependencies.needs, code.needs) == ("", heavy.tag, "")
    ready = replace(ORDER, space=replace(ORDER.space, image="registry:5000/lab/ready@sha256:ab"))
    made = plan(ready, SETTINGS)
    assert (made.builds, made.image_by_digest) == ((), "registry:5000/lab/ready@sha256:ab")


def test_build_names_are_valid_for_long_projects():
    long = Repository(name="a-very-long-name-of-a-repository-of-someone", url="https://git.example/x.git")
    files = {"pyproject.toml": PROJECT, "uv.lock": WITH_TORCH}
    for build in (
        *planned(files, repository=long).builds,
        *planned({"Dockerfile": ""}, repository=long).builds,
    ):
        assert len(build.ref.name) <= 63
        assert len(build.tag) <= 128


def test_builds_use_the_registrys_urls_credentials_and_certificates():
    settings = SETTINGS.model_copy(
        update={"image_registry_push": "push:5000", "image_registry_plain_http": True}
    )
    made = planned(UV, settings)
    for build in made.builds:
        args = build.job["spec"]["template"]["spec"]["containers"][0]["args"]
        assert f"--destination=push:5000/{build.repository}:{build.tag}" in args
        assert "--insecure-registry=push:5000" in args
        assert f"--insecure-registry={settings.image_registry}" in args, "a base image can be there"
    assert made.image_by_digest.startswith("registry:5000/sweepbot/digits@")
    settings = PlanSettings(image_registry_secret="login", build_ca_configmap="company-ca")
    made = plan(replace(ORDER, source=replace(SOURCE, files=UV)), settings)
    pod = made.experiment["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "login"}]
    assert "imagePullSecrets" not in str(PLAN.experiment)
    volumes = made.builds[0].job["spec"]["template"]["spec"]["volumes"]
    assert {v["name"] for v in volumes} == {"generated", "registry", "ca"}
    settings = PlanSettings(image_registry_secret="pull", image_push_secret="push")
    source = replace(SOURCE, files=UV, repository=replace(REPOSITORY, push_secret="push-digits"))
    made = plan(replace(ORDER, source=source), settings)
    pod = made.experiment["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    volumes = {b.role: b.job["spec"]["template"]["spec"]["volumes"] for b in made.builds}
    secrets = {role: [v["secret"]["secretName"] for v in vs if "secret" in v] for role, vs in volumes.items()}
    assert secrets == {Role.DEPENDENCIES: ["push"], Role.CODE: ["push-digits"]}


TOKEN = "https://ada:s3cr3t@pypi.lab.example/simple"
WITH_LOGIN = {
    "requirements.txt": f"--extra-index-url {TOKEN}\ntorch==2.7.1\nnumpy\n",
    "Dockerfile": f"FROM x\nCOPY needs.txt .\nRUN pip install -i {TOKEN} -r needs.txt\nCOPY . .\n",
}


@pytest.mark.parametrize("path", WITH_LOGIN)
def test_login_of_a_package_index_is_in_no_job_and_no_record(path):
    made = planned({path: WITH_LOGIN[path], "needs.txt": "numpy"})
    assert "s3cr3t" not in str(made)
    assert "s3cr3t" not in json.dumps([build.job for build in made.builds])
    (note,) = made.space.notes
    assert note.startswith(f"`{path}` has a password or token in a URL")
    by_variable = {path: WITH_LOGIN[path].replace("ada:s3cr3t", "ada:${INDEX_TOKEN}"), "needs.txt": "numpy"}
    assert planned(by_variable).space.notes == ()


def test_builds_name_the_git_secret_only_if_they_clone():
    files = {"pyproject.toml": PROJECT, "uv.lock": WITH_TORCH}
    made = planned(files, repository=replace(REPOSITORY, secret="git-digits"))
    pods = {b.role: b.job["spec"]["template"]["spec"] for b in made.builds}
    containers = {role: pod["containers"][0] for role, pod in pods.items()}
    fetching = {role: pod.get("initContainers", []) for role, pod in pods.items()}
    assert {role: "git-digits" in str(each["env"]) for role, each in containers.items()} == {
        Role.FRAMEWORKS: False,
        Role.DEPENDENCIES: False,
        Role.CODE: True,
    }
    assert {role: "git-digits" in str(each) for role, each in fetching.items()} == {
        Role.FRAMEWORKS: False,
        Role.DEPENDENCIES: True,
        Role.CODE: False,
    }
    assert "--context=/sweepbot" in containers[Role.FRAMEWORKS]["args"]
    assert "git://" not in str(containers[Role.FRAMEWORKS]["args"])


def test_builds_before_the_code_are_stored_with_their_project():
    files = {"Dockerfile": "FROM python:3.11\nWORKDIR /app\nRUN pip install numpy\nCOPY . .\n"}
    fork = Repository(name="fork", url="https://git.example/fork.git")
    one, other = planned(files).builds[0], planned(files, repository=fork).builds[0]
    assert (one.role, one.repository, other.repository) == (
        Role.DEPENDENCIES,
        "sweepbot/digits",
        "sweepbot/fork",
    )
    assert one.ref != other.ref
    for build in planned(UV).builds:
        assert "--cache=true" not in str(build.job), (
            "sweepbot/dependencies has no cache that a push could plant"
        )
