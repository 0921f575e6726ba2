"""Other users can push to the registry: their images are never used."""

import pytest

from bot.core.record import Phase
from k8s.kaniko import DOCKERFILE_KEY
from tests.bot.factories import PLAN
from tests.scenarios.fakes import DIGEST
from tests.scenarios.sweep_in_memory import Clock, SimulatedSweep
from tests.scenarios.test_any_crash import FRAMEWORKS, UV
from tests.scenarios.test_composing import jobs, reported, until_phase

PLANTED = f"sha256:{'e' * 64}"


@pytest.fixture
def simulation(redis):
    return lambda **scenario: SimulatedSweep(redis, Clock(None), **scenario)


async def plan_of(one):
    await until_phase(one, Phase.BUILDING)
    return (await one.record()).plan


async def test_dependencies_pushed_by_others_are_built_anyway(simulation):
    one = simulation(files=UV)
    async with one.started():
        for build in (await plan_of(one)).builds:
            one.registry.push(f"{build.repository}:{build.tag}", PLANTED)
        await until_phase(one, Phase.PENDING)
        assert len(jobs(one)) == 2, "as if nothing had been there"
        assert one.registry.composed == [(DIGEST, DIGEST)]


async def test_image_pushed_by_others_is_built_anyway(simulation):
    one = simulation()
    one.registry.push(f"{PLAN.image_repository}:{PLAN.image_tag}", PLANTED)
    async with one.started():
        await until_phase(one, Phase.PENDING)
        assert (await one.record()).image.endswith(DIGEST)


async def test_tag_moved_between_build_and_use_changes_nothing(simulation):
    one = simulation(files=FRAMEWORKS)
    ends = one._end

    def then_moved(pod, labels):
        ends(pod, labels)
        one.registry.images = dict.fromkeys(one.registry.images, PLANTED)

    one._end = then_moved
    async with one.started():
        await until_phase(one, Phase.PENDING)
        assert set(one.registry.composed) == {(DIGEST, DIGEST)}
        (job,) = [j for j in one.kubernetes.list("Job") if j["metadata"]["name"].startswith("build-deps")]
    dockerfile = job["spec"]["template"]["metadata"]["annotations"][DOCKERFILE_KEY]
    assert dockerfile.startswith(f"FROM registry:5000/sweepbot/dependencies@{DIGEST}\n")


async def test_recorded_image_is_reused_after_redis_lost_everything(simulation):
    one = simulation(files=UV)
    async with one.started():
        plan = await plan_of(one)
        await until_phase(one, Phase.PENDING)
        kept = {
            m["metadata"]["name"]: m["data"] for m in one.kubernetes.list("ConfigMap") if "image" in m["data"]
        }
    dependencies = plan.builds[0]
    assert kept == {
        f"image.sweepbot.{place.replace('/', '.').replace(':', '.')}": {
            "image": f"sweepbot/{place}",
            "digest": DIGEST,
        }
        for place in (f"dependencies:{dependencies.tag}", f"digits:{plan.image_tag}")
    }
    again = simulation(files=UV)
    async with again.started():
        for data in kept.values():
            repository, _, tag = data["image"].partition(":")
            await again.has(repository, tag, data["digest"])
        await until_phase(again, Phase.PENDING)
        assert not [name for name in jobs(again) if name.startswith("build")]
    assert again.last.steps["image"] == "✓ Image reused from the registry"


async def test_recorded_image_that_left_the_registry_is_built_again(simulation):
    one = simulation()
    async with one.started():
        await one.has(PLAN.image_repository, PLAN.image_tag, PLANTED)
        one.registry.pushed.clear()
        await until_phase(one, Phase.PENDING)
        assert (await one.record()).image.endswith(DIGEST)


async def test_build_without_a_reported_digest_is_reported(simulation):
    one = simulation()
    ends = one._status

    def silent(pod, phase, state):
        state.get("terminated", {}).pop("message", None)
        ends(pod, phase, state)

    one._status = silent
    async with one.started():
        await until_phase(one, Phase.FAILED)
    assert reported(one, "its pod didn't report the image's digest")
