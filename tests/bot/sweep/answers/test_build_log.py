"""Which build's log answers a question about a sweep without trials."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from bot.core.plan import Role
from bot.sweep.answers.sweep_log import read_log
from bot.sweep.model.observation import Observation
from k8s.objects import BUILD_LABEL
from tests.bot.factories import PLAN, a_sweep
from tests.bot.sweep.model.observations import MAKES


def a_build(role, name):
    return replace(MAKES, role=role, job=MAKES.job | {"metadata": MAKES.job["metadata"] | {"name": name}})


BUILDS = a_build(Role.DEPENDENCIES, "build-deps"), a_build(Role.CODE, "build-code")
SWEEP = a_sweep(plan=replace(PLAN, builds=BUILDS))


class Cluster:
    def __init__(self, **phases):
        self.phases = phases

    async def list(self, _kind, _namespace, *, labels):
        name = labels.removeprefix(f"{BUILD_LABEL}=build-")
        phase = self.phases[name]
        return [{"metadata": {"name": f"pod-{name}"}, "status": {"phase": phase}}] if phase else []

    async def tail(self, _namespace, pod, _container, _lines):
        return f"log of {pod}"


@pytest.mark.parametrize(
    ("dependencies", "code", "shown"),
    [
        ("Failed", "Succeeded", "pod-deps"),
        ("Succeeded", "Failed", "pod-code"),
        ("Succeeded", "Running", "pod-code"),
        ("Running", "", "pod-deps"),
    ],
)
async def test_log_of_builds_is_that_of_the_failed_one_else_of_the_last(dependencies, code, shown):
    cluster = Cluster(deps=dependencies, code=code)
    log = await read_log(SWEEP, Observation(), "", SimpleNamespace(cluster=cluster, home=cluster))
    assert (log.shown, log.file) == (f"log of {shown}", f"{shown}.log")
