"""Dependencies and code, in memory: what is created, in which order, and after a cleanup."""

import pytest

from bot.core.record import Phase
from local.kubernetes.apiserver.kinds import refusal
from tests.scenarios.sweep_in_memory import Clock, SimulatedSweep
from tests.scenarios.test_any_crash import FRAMEWORKS, UV


@pytest.fixture
def simulation(redis):
    return lambda **scenario: SimulatedSweep(redis, Clock(None), **scenario)


def jobs(one):
    return {job["metadata"]["name"].split("-0123")[0] for job in one.kubernetes.list("Job", "sweeps")}


def shown(one, words):
    """Whether the image's step has had these words; the message shows the last one of two seconds."""
    return any(words in step for step in one.steps)


def reported(one, words):
    return [text for text in one.slack.posted if words in text]


async def until_phase(one, phase, most=20):
    for _ in range(most):
        await one.round()
        record = await one.record()
        one.steps = [*getattr(one, "steps", ()), record.steps.get("image", "")]
        if record.phase is phase:
            return
    pytest.fail(f"still {(await one.record()).phase}")


async def test_composing_builds_both_parts_at_once(simulation):
    one = simulation(files=UV)
    async with one.started():
        await until_phase(one, Phase.BUILDING)
        await one.round()
        assert len(jobs(one)) == 2
        await until_phase(one, Phase.PENDING)
    assert shown(one, "○ Building from `uv.lock`: dependencies and code")
    assert shown(one, "dependencies built")
    assert shown(one, "code built")


async def test_composing_reports_two_rejected_builds_once(simulation):
    asked = []

    def refuse(job):
        asked.append(job["metadata"]["name"])
        raise refusal(403, "exceeded quota: jobs", "Forbidden")

    one = simulation(files=UV)
    one.kubernetes.admission("Job", refuse)
    async with one.started():
        await until_phase(one, Phase.FAILED)
    assert len(asked) == 1
    assert len(one.slack.posted) == 2  # this, and the end
    assert len(reported(one, "The cluster rejected the Job:\n")) == 1


async def test_composing_builds_dependencies_in_order_and_code_beside_them(simulation):
    one = simulation(files=FRAMEWORKS)
    async with one.started():
        await until_phase(one, Phase.BUILDING)
        await one.round()
        assert sorted(name.split("-")[1] for name in jobs(one)) == ["digits", "heavy"]
        await until_phase(one, Phase.PENDING)
    assert shown(one, "ML frameworks built")


async def test_composing_reuses_dependencies_without_checking_their_base(simulation):
    one = simulation(files=FRAMEWORKS)
    asked = []
    async with one.started():
        await until_phase(one, Phase.OPENING)
        (build,) = [b for b in (await one.record()).plan.builds if b.needs]
        await one.has(build.repository, build.tag)
        command = one.registry.digest

        async def listen(repository, tag):
            asked.append(tag)
            return await command(repository, tag)

        one.registry.digest = listen
        await until_phase(one, Phase.PENDING)
        assert {name.split("-")[1] for name in jobs(one) if name.startswith("build")} == {"digits"}
    assert shown(one, "code; ML frameworks and dependencies reused")
    assert shown(one, "Image: ML frameworks and dependencies reused, code built")
    assert not [tag for tag in asked if tag.startswith("heavy-")]


async def test_composing_rebuilds_dependencies_deleted_before_use(simulation):
    one = simulation(files=UV)
    compose = one.registry.compose

    async def vanish(to, below, above):
        one.registry.compose = compose
        one.registry.pushed.discard(str(below))
        for job in one.kubernetes.list("Job", "sweeps"):
            if "deps" in job["metadata"]["name"]:  # its hour is over, too
                one.kubernetes.delete("Job", "sweeps", job["metadata"]["name"])
        return await compose(to, below, above)

    async with one.started():
        one.registry.compose = vanish
        await until_phase(one, Phase.PENDING, most=30)
    assert one.registry.compose == compose
