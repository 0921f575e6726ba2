"""How many placeholders hold what is reserved."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.errors import UserError
from bot.platform.config.profiles import Profile
from bot.platform.config.queues import Queue
from bot.platform.config.teams import Team
from bot.workspaces.reservations.models import (
    Reservation,
    needed,
    profile_of,
    reservation_id,
    surplus,
    team_queue,
)
from k8s.kueue import Workload
from k8s.objects import GPU
from k8s.reservations import Placeholder
from tests.bot.factories import CONFIG, NOW

FIRST = Reservation(
    id="vision-1",
    team="vision",
    gpus=4,
    until=NOW + timedelta(days=1),
    by="U1",
    namespace="sweeps",
    queue="research",
    created=NOW,
)
MIG = "nvidia.com/mig-3g.40gb"
SECOND = replace(FIRST, id="vision-2", until=NOW + timedelta(days=2))


def used(gpus, queue="research", job="trial", resource=GPU):
    names = {"name": job, "namespace": "sweeps", "job": job, "job_uid": "", "queue": queue}
    return Workload(**names, devices={resource: gpus}, admitted=True)


def test_trials_count_once_toward_the_reservations_of_their_queue():
    assert needed([FIRST, SECOND], [used(3), used(3)]) == {"vision-1": 0, "vision-2": 2}
    assert needed([FIRST, SECOND], [used(8)]) == {"vision-1": 0, "vision-2": 0}


def test_trials_of_another_queue_and_placeholders_do_not_count():
    others = [used(3, queue="urgent"), used(3, job="sweepbot-reserved-vision-1-0")]
    assert needed([FIRST, SECOND], others) == {"vision-1": 4, "vision-2": 4}


def test_reservation_id_is_a_short_name_and_the_same_for_a_repeated_delivery():
    name = reservation_id("computer-vision-and-more", "1700000000.1")
    assert name == reservation_id("computer-vision-and-more", "1700000000.1")
    assert name != reservation_id("computer-vision-and-more", "1700000000.2")
    assert re.fullmatch(r"computer-vision-and-[0-9a-f]{5}", name)


@pytest.mark.parametrize(
    ("team", "place"),
    [
        (Team(name="vision", namespace="vision", queue="urgent"), ("vision", "urgent")),
        (Team(name="vision"), ("", "research")),  # the first queue of the configuration
        (Team(name="speech", queue="urgent"), ("", "")),
    ],
)
def test_team_queue_is_its_own_or_the_first(team, place):
    queues = (Queue(name="research"), Queue(name="urgent"))
    assert team_queue("vision", replace(CONFIG, teams=(team,), queues=queues)) == place


def test_team_queue_without_queues_is_empty():
    assert team_queue("vision", replace(CONFIG, teams=(Team(name="vision"),))) == ("", "")


def test_released_or_ended_reservation_is_not_active():
    assert FIRST.active(NOW)
    assert not FIRST.active(FIRST.until)
    assert not replace(FIRST, released=True).active(NOW)


def test_surplus_placeholders_are_those_that_wait_first():
    held = [
        Placeholder(name=f"p{n}", uid="", reservation="vision-1", number=n, suspended=n < 2) for n in range(4)
    ]
    assert [each.number for each in surplus(held, 3)] == [1]
    assert [each.number for each in surplus(held, 1)] == [3, 0, 1]
    assert surplus(held, 4) == []


def test_trials_count_toward_reservations_of_their_resource_only():
    slices = replace(SECOND, profile="mig", resource=MIG)
    assert needed([FIRST, slices], [used(3)]) == {"vision-1": 1, "vision-2": 4}
    assert needed([FIRST, slices], [used(3, resource=MIG)]) == {"vision-1": 4, "vision-2": 1}


def test_profile_that_claims_gpus_by_a_device_class_cannot_be_reserved():
    claims = Profile(name="claims", gpus=1, device_class="gpu.nvidia.com")
    with pytest.raises(UserError, match=r"claims GPUs, which queues don't count\. Add one with GPUs\."):
        profile_of("claims", replace(CONFIG, profiles=(claims,)))
