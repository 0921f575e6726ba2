"""The number of replicas over simulated time: down at once, up after five minutes, one each minute."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.workspaces.elastic.supply import Supply, Times, decide
from tests.bot.factories import NOW
from tests.bot.workspaces.elastic.factories import LLM, pods_of
from tests.bot.workspaces.elastic.test_supply import waiting

MINUTE = timedelta(minutes=1)
POD = pods_of(waiting())[0]


class Life:
    """Decisions every 10 seconds, as a leader takes them."""

    def __init__(self, replicas=0, **config):
        self.config, self.replicas, self.times, self.now = replace(LLM, **config), replicas, Times(), NOW

    def see(self, minutes=0.0, **supply):
        """Pass this time with this supply; return the replicas."""
        self._decide(supply)
        for _ in range(round(minutes * 6)):
            self.now += timedelta(seconds=10)
            self._decide(supply)
        return self.replicas

    def _decide(self, supply):
        seen = Supply(**{"running": self.replicas, "ready": self.replicas, "free": 0, "coming": 0} | supply)
        decision = decide(self.config, self.replicas, seen, self.times, self.now)
        self.times = replace(self.times, free_since=decision.free_since)
        if decision.replicas > self.replicas:
            self.times = replace(self.times, raised_at=self.now)
        if decision.replicas < self.replicas:
            self.times = replace(self.times, lowered_at=self.now)
        self.replicas = decision.replicas


def test_decision_raises_after_five_free_minutes_one_step_each_minute():
    life = Life()
    assert life.see(4.9, free=8, coming=8) == 0
    assert life.see(0.2, free=8, coming=8) == 1
    assert life.see(0.5, free=7, coming=7) == 1
    assert life.see(0.5, free=7, coming=7) == 2
    assert life.see(60, free=8, coming=8) == LLM.max


def test_decision_after_an_interruption_waits_five_minutes_again():
    life = Life()
    life.see(4.5, free=1, coming=1)
    life.see(free=0)
    assert life.see(4.9, free=1, coming=1) == 0
    assert life.see(0.2, free=1, coming=1) == 1


@pytest.mark.parametrize("pressure", [{"pressing": (POD,)}, {"nominated": (POD,)}])
def test_decision_under_pressure_never_raises(pressure):
    assert Life(2).see(60, free=3, coming=3, **pressure) == 2


def test_decision_lowers_to_the_survivors_at_once():
    assert Life(6).see(running=4, nominated=(POD,)) == 4


def test_decision_leaves_the_choice_of_victims_to_the_scheduler():
    assert Life(6).see(running=6, pressing=(POD,)) == 6


def test_decision_takes_away_victims_of_pods_that_cannot_preempt():
    assert Life(6).see(running=6, pressing=(POD,), victims=(POD, POD)) == 4


def test_decision_after_any_step_down_waits_ten_minutes():
    life = Life(6)
    life.see(running=4, nominated=(POD,))
    assert life.see(9.9, free=2, coming=2) == 4
    assert life.see(0.2, free=2, coming=2) == 5


def test_decision_adds_no_replica_while_one_has_no_node():
    assert Life(1).see(60, running=0, free=3, coming=3) == 1


def test_decision_keeps_a_reserve():
    life = Life(0, reserve=2)
    assert life.see(60, free=2, coming=2) == 0
    assert life.see(5.1, free=3, coming=3) == 1
    assert Life(3, reserve=1).see(running=3, free=0, coming=0) == 2  # restores it


@pytest.mark.parametrize(
    ("replicas", "config", "supply", "expected"),
    [
        (0, {"min": 2}, {}, 2),
        (9, {}, {"running": 9}, 6),
        (1, {"min": 1}, {"running": 1, "pressing": (POD,), "victims": (POD,)}, 1),
        (4, {}, {"running": 3, "free": 0, "coming": 1}, 4),  # a rollout: the old pod terminates
        (4, {}, {"running": 3, "free": 0, "coming": 0}, 3),  # one that fits nowhere
    ],
)
def test_decision_stays_within_its_limits(replicas, config, supply, expected):
    assert Life(replicas, **config).see(**supply) == expected


def test_decision_says_when_the_next_replica_follows():
    seen = Supply(running=1, ready=1, free=2, coming=2)
    times = Times(free_since=NOW, lowered_at=NOW)
    assert decide(LLM, 1, seen, times, NOW).raise_at == NOW + 10 * MINUTE
    assert decide(LLM, 1, replace(seen, free=0), times, NOW).raise_at is None
