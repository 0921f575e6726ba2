"""Who can start, change, and open environments, and how many of them and of their GPUs."""

from dataclasses import replace

import pytest

from bot.platform.config.environments import EnvironmentLimits, ServiceConfig
from bot.platform.config.limits import Launch
from bot.platform.config.teams import Team
from bot.workspaces.environments.permissions import denial, service_start_denial, size_denial, start_denial
from bot.workspaces.environments.record import EnvironmentRecord, Wanted
from bot.workspaces.environments.requests import Verb
from bot.workspaces.services.snippet import Service
from tests.bot.factories import ADMIN, CONFIG, NOW, OWNER, STRANGER
from tests.bot.workspaces.environments.world import ENVIRONMENTS
from tests.cases import cases

LIMITS = EnvironmentLimits(per_person=3, per_team=4, gpus=4, gpus_per_person=6, gpus_per_team=8)
ALLOWING = replace(CONFIG, environments=replace(ENVIRONMENTS, limits=LIMITS))
WANTED = EnvironmentRecord(
    name="new", owner=OWNER, team="vision", channel="C1", request_id="1", image="jupyter", gpus=2, since=NOW
)
ASK = f"*Fix:* Ask <@{ADMIN}>"
VISION = (Team(name="vision", members=(OWNER, STRANGER)),)


def others(*gpus, owner=OWNER, wanted=Wanted.RUNNING, team="vision"):
    return [
        replace(WANTED, name=f"{owner}-{n}".lower(), owner=owner, gpus=each, wanted=wanted, team=team)
        for n, each in enumerate(gpus)
    ]


def refused(wanted, there=(), user=OWNER, config=ALLOWING):
    return size_denial(user, wanted, there, config)


@pytest.mark.parametrize(
    ("launch", "user", "refusal"),
    [
        (Launch(), STRANGER, ""),
        (Launch(people=(OWNER,)), OWNER, ""),
        (
            Launch(people=(OWNER,)),
            STRANGER,
            f"You don't have permission to start environments. {ASK} to add you to `launch.people`.",
        ),
        (Launch(people=(OWNER,)), ADMIN, ""),
        (Launch(channels=("C1",)), STRANGER, ""),
        (Launch(channels=("C2", "C3")), STRANGER, "Environments can only be started in <#C2> or <#C3>."),
        (Launch(channels=("C2",)), ADMIN, ""),
    ],
)
def test_start_is_for_the_people_and_channels_of_launches(launch, user, refusal):
    assert start_denial(user, "C1", replace(ALLOWING, launch=launch)) == refusal


def test_start_denial_without_admins_still_says_whom_to_ask():
    config = replace(ALLOWING, launch=Launch(people=(OWNER,)), admins=())
    assert "*Fix:* Ask an admin to add you" in start_denial(STRANGER, "C1", config)


def test_start_without_configuration_says_what_to_add():
    assert "add `environments:`" in start_denial(ADMIN, "C1", replace(CONFIG, environments=None))


@pytest.mark.parametrize(
    ("user", "mates", "can_change", "can_open"),
    [
        (OWNER, False, True, True),
        (ADMIN, False, True, False),
        (STRANGER, False, False, False),
        (STRANGER, True, True, False),
    ],
)
def test_changes_are_for_owner_admins_and_teammates_by_setting_and_opening_for_the_owner(
    user, mates, can_change, can_open
):
    config = replace(ALLOWING, teams=VISION, teammates_can_act=mates)
    for verb in (Verb.STOP, Verb.KEEP, Verb.DELETE):
        assert (denial(user, verb, WANTED, config) == "") == can_change
    personal = f"Only <@{OWNER}> (owner) can open `new`: its credentials are personal."
    assert denial(user, Verb.OPEN, WANTED, config) == ("" if can_open else personal)


def test_change_denial_names_teammates_only_if_they_can_act():
    outsider = "U9OUT"
    teams = replace(ALLOWING, teams=VISION)
    assert "a teammate" not in denial(outsider, Verb.STOP, WANTED, teams)
    acting = replace(teams, teammates_can_act=True)
    assert "(owner), a teammate, or an admin can stop" in denial(outsider, Verb.STOP, WANTED, acting)


@cases(
    ("gpus", "there", "refusal"),
    [
        (4, [], ""),
        (5, [], "The limit is 4 GPUs per environment; got gpus=5."),
        (0, others(0, 0), ""),
        (0, others(0, 0, 0), "The limit is 3 environments per person."),
        (0, others(0, 0, 0, wanted=Wanted.STOPPED), "The limit is 3 environments per person."),
        (0, others(0, 0, 0, wanted=Wanted.DELETED), ""),
        (0, [*others(0, 0), *others(0, owner=STRANGER)], ""),
        (0, others(0, 0, 0, 0, owner=STRANGER), "The limit is 4 environments per team."),
        (0, others(0, 0, 0, 0, owner=STRANGER, team="speech"), ""),
        (2, others(4), ""),
        (3, others(4), "The limit is 6 GPUs in running environments per person."),
        (3, others(4, wanted=Wanted.STOPPED), ""),
        (2, others(4, 2, owner=STRANGER), ""),
        (3, others(4, 2, owner=STRANGER), "The limit is 8 GPUs in running environments per team."),
        (0, others(4, 4), ""),  # it requests none
    ],
)
def test_size_is_limited_per_environment_person_and_team(gpus, there, refusal):
    wanted = replace(WANTED, gpus=gpus)
    found = refused(wanted, there)
    assert found.startswith(refusal)
    assert bool(found) == bool(refusal)
    assert refused(wanted, there, user=ADMIN) == ""


MINE = f"{OWNER.lower()}-0"
PER_PERSON = "The limit is 6 GPUs in running environments per person."
STOP = "*Fix:* Stop one"


@cases(
    ("gpus", "there", "refusal"),
    [
        (9, [], f"The limit is 8 GPUs per environment; got gpus=9. {ASK}, or request fewer."),
        (
            3,
            others(4),
            f"{PER_PERSON} This environment requests 3; in use: `{MINE}` (4). {STOP}, or request fewer GPUs.",
        ),
        (7, others(0), f"{PER_PERSON} This environment requests 7. *Fix:* Request fewer GPUs."),
    ],
)
def test_size_denial_says_what_is_in_use_and_what_to_do(gpus, there, refusal):
    config = replace(ALLOWING, environments=replace(ENVIRONMENTS, limits=replace(LIMITS, gpus=8)))
    assert refused(replace(WANTED, gpus=gpus), there, config=config) == refusal


def test_people_without_a_team_share_no_limit():
    alone = replace(WANTED, team="", gpus=3)
    assert refused(alone, others(4, 4, 4, 4, owner=STRANGER, team="")) == ""


SERVICE = replace(WANTED, name="vllm", gpus=1, service=Service(image="vllm/vllm:1", port=8000, gpus=1))
SERVING = replace(
    ALLOWING, environments=replace(ALLOWING.environments, services=ServiceConfig(images=("vllm/",)))
)


def test_services_have_limits_of_their_own():
    assert refused(SERVICE, others(0, 0, 0), config=SERVING) == "", "environments don't count"
    two = [replace(SERVICE, name=name) for name in ("a", "b")]
    assert refused(SERVICE, two, config=SERVING).startswith("The limit is 2 services per person.")
    assert refused(WANTED, two, config=SERVING) == ""
    many = replace(SERVICE, gpus=4, service=replace(SERVICE.service, replicas=4))
    assert "replicas per service" in refused(many, config=SERVING)


def test_services_need_a_configuration():
    for denied in (refused(SERVICE), service_start_denial(OWNER, "C1", ALLOWING)):
        assert denied.startswith("Services aren't configured. *Fix:* Ask an admin to add")
    assert service_start_denial(OWNER, "C1", SERVING) == ""
    assert "`environments:`" in service_start_denial(OWNER, "C1", replace(CONFIG, environments=None))
