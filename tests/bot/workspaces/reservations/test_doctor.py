"""What the doctor finds about `reservations:`."""

from dataclasses import replace

import pytest

from bot.core.finding import Level, ok
from bot.operate import check_reservations
from bot.operate.check_reservations import reservations
from bot.platform.config.teams import Team
from tests.bot.factories import CONFIG, SETTINGS

VISION = Team(name="vision", namespace="vision", queue="vision")
RESERVING = replace(CONFIG, reservations=True, teams=(VISION, Team(name="nlp")))


class Classes:
    def __init__(self, **classes):
        self.classes = classes

    async def list(self, kind, namespace):
        return [
            {"metadata": {"name": name.replace("_", "-")}, "value": v} for name, v in self.classes.items()
        ]


@pytest.fixture
def namespaces(monkeypatch):
    asked = []

    async def granted(cluster, namespace, wanted, fix):
        asked.append((namespace, fix))
        return ok("permissions", namespace)

    monkeypatch.setattr(check_reservations, "granted", granted)
    return asked


@pytest.mark.parametrize(
    ("classes", "level"),
    [
        ({"sweepbot_reservation": -1000000, "low": 10}, Level.OK),
        ({"sweepbot_reservation": 100, "low": 10}, Level.BROKEN),
        ({"sweepbot_reservation": 0}, Level.BROKEN),
        ({"low": 10}, Level.BROKEN),
    ],
)
async def test_reservations_without_the_lowest_priority_are_broken(namespaces, classes, level):
    found = await reservations(Classes(**classes), SETTINGS, RESERVING)
    assert found[-1].level is level
    assert namespaces == [("vision", "kubectl -n vision apply -f deploy/reservations/rights.yaml")]


async def test_reservations_without_a_teams_queue_are_broken(namespaces):
    config = replace(RESERVING, teams=(Team(name="nlp"),))
    [found] = await reservations(Classes(), SETTINGS, config)
    assert (found.level, found.text) == (Level.BROKEN, "no team has a queue")
