"""Requests for environments that are denied, in memory."""

import logging
from dataclasses import replace

import pytest

from bot.platform.config.teams import Team
from bot.workspaces.environments.requests import Verb
from k8s.objects import OWNER_LABEL
from tests.bot.factories import OWNER, STRANGER
from tests.scenarios.fakes import DirectCluster


@pytest.mark.parametrize("verb", [Verb.STOP, Verb.KEEP, Verb.DELETE])
async def test_others_cannot_change_an_environment(world, verb):
    await world.ask(Verb.START)
    await world.ready()
    before = world.record()
    await world.ask(verb, user=STRANGER, hours=24)
    assert world.record() == before
    assert world.slack.answers == [(STRANGER, f"Only <@{OWNER}> (owner) or an admin can {verb} `lab`.")]


async def test_name_of_another_person_is_refused(world):
    await world.ask(Verb.START)
    await world.ask(Verb.START, user=STRANGER)
    assert world.slack.answers == [
        (
            STRANGER,
            f"Only <@{OWNER}> (owner) or an admin can start `lab`. To start your own, use another name.",
        )
    ]


async def test_home_of_another_person_is_refused(world):
    await world.ask(Verb.START)
    await world.ask(Verb.DELETE)
    await world.end_pod()
    await world.ask(Verb.START, user=STRANGER)
    assert world.slack.answers == [(STRANGER, "Home `lab` belongs to someone else. Use another name.")]
    await world.ask(Verb.DELETE_HOME, user=STRANGER)
    assert world.slack.answers[-1] == (STRANGER, f"Only <@{OWNER}> (owner) can delete home `lab`.")
    assert world.objects() == [("PersistentVolumeClaim", "home-lab")]


@pytest.mark.parametrize("owner", [STRANGER, None])
async def test_home_that_another_person_got_meanwhile_is_not_mounted(world, owner):
    await world.ask(Verb.START)
    await world.ask(Verb.STOP)
    await world.end_pod()
    claim = world.kubernetes.get("PersistentVolumeClaim", "environments", "home-lab")
    theirs = {"metadata": {"labels": claim["metadata"]["labels"] | {OWNER_LABEL: owner}}}
    world.kubernetes.patch("PersistentVolumeClaim", "environments", "home-lab", theirs)
    await world.ask(Verb.START, request_id="again")
    assert world.record().reason == "Home lab belongs to someone else. Start it with another home=."
    assert world.pod() is None


async def test_home_is_deleted_only_by_its_own_request_and_only_unused(world):
    await world.ask(Verb.START)
    await world.ask(Verb.DELETE_HOME)
    expected = "Home `lab` is used by environment `lab`. Delete that environment first."
    assert world.slack.answers == [(OWNER, expected)]
    await world.ask(Verb.DELETE)
    await world.end_pod()
    await world.ask(Verb.DELETE_HOME, request_id="typed")
    assert world.objects() == []


async def test_home_that_an_environment_of_another_name_uses_is_kept(world):
    await world.ask(Verb.START)
    await world.ask(Verb.DELETE)
    await world.end_pod()
    await world.ask(Verb.START, name="second", home="lab", request_id="second")
    assert world.record("second").home == "lab"
    await world.ask(Verb.DELETE_HOME)
    expected = "Home `lab` is used by environment `second`. Delete that environment first."
    assert world.slack.answers == [(OWNER, expected)]
    assert ("PersistentVolumeClaim", "home-lab") in world.objects()


@pytest.mark.parametrize(
    ("kind", "name", "verb"),
    [("PersistentVolumeClaim", "home-lab", Verb.DELETE_HOME), ("StatefulSet", "env-lab", Verb.DELETE)],
)
async def test_object_that_was_replaced_since_it_was_checked_is_kept(world, monkeypatch, kind, name, verb):
    await world.ask(Verb.START)
    if verb is Verb.DELETE_HOME:
        await world.ask(Verb.DELETE)
        await world.end_pod()
    checked = DirectCluster.get

    async def replaced(cluster, ref):
        found = await checked(cluster, ref)
        if found and ref.kind == kind:
            new = {key: found["metadata"][key] for key in ("name", "namespace", "labels")}
            world.kubernetes.delete(ref.kind, ref.namespace, ref.name)
            world.kubernetes.create(found | {"metadata": new})
            monkeypatch.undo()
        return found

    monkeypatch.setattr(DirectCluster, "get", replaced)
    before = world.kubernetes.get(kind, "environments", name)
    await world.ask(verb, request_id="last")
    after = world.kubernetes.get(kind, "environments", name)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert "deletionTimestamp" not in after["metadata"]


async def test_limits_of_a_person_are_enforced(world, caplog):
    caplog.set_level(logging.INFO, "sweepbot.audit")
    for name in ("a", "b", "c"):
        await world.ask(Verb.START, name=name, request_id=name)
    assert world.slack.answers == [
        (OWNER, "The limit is 2 environments per person. *Fix:* Delete one of yours (`a` and `b`).")
    ]
    await world.ask(Verb.DELETE, name="b")
    await world.ask(Verb.STOP, name="a")
    await world.end_pod("a")
    await world.ask(Verb.START, name="a", gpus=2, request_id="more")
    assert world.slack.answers[-1][1].startswith("The limit is 1 GPU per environment; got gpus=2.")
    assert f"user={OWNER} action=environment_start environment=c: denied: The limit is 2" in caplog.text
    assert f"user={OWNER} action=environment_start environment=a: denied: The limit is 1" in caplog.text


async def test_second_gpu_of_a_person_is_denied_with_what_is_in_use(world):
    await world.ask(Verb.START, name="a", gpus=1, request_id="a")
    await world.ask(Verb.START, name="b", gpus=1, request_id="b")
    assert world.slack.answers[-1][1] == (
        "The limit is 1 GPU in running environments per person. This environment requests 1; in use: `a` (1)."
        " *Fix:* Stop one, or request fewer GPUs."
    )


async def test_teammates_of_an_admin_stay_within_the_limits(world):
    teams = (Team(name="vision", members=(OWNER, STRANGER)),)
    config = replace(world.clients.config, admins=(OWNER,), teams=teams, teammates_can_act=True)
    world.clients.config = config
    await world.ask(Verb.START)
    await world.ask(Verb.STOP)
    await world.end_pod()
    await world.ask(Verb.START, user=STRANGER, gpus=8, request_id="again")
    assert world.slack.answers[-1][1].startswith("The limit is 1 GPU per environment; got gpus=8.")
    await world.ask(Verb.START, gpus=8, request_id="own")
    assert world.record().gpus == 8


async def test_outside_the_bots_channels_nothing_is_left(world):
    world.slack.invited = False
    await world.ask(Verb.START)
    assert world.objects() == []
    assert "Sweepbot can't post in that channel" in world.slack.answers[0][1]
