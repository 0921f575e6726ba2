"""What a team's configuration changes for its members: limits, channels, and prices."""

from dataclasses import replace

import pytest

from bot.measure.gpus.sums import UsageSum, grouped
from bot.platform.config.limits import Launch
from bot.platform.config.permissions import OtherPeaks, launch_denial, size_denial
from bot.platform.config.policy import parse_config
from bot.platform.config.teams import Team, price_of, prices_for
from tests.bot.factories import ADMIN, CONFIG, OWNER, PLAN

VISION = Team(name="vision", members=(OWNER, "UMATE"), channels=("C2",), gpus_per_person=4, gpus_total=6)
CLUSTER = replace(CONFIG, teams=(VISION,), launch=Launch(channels=("C1",), gpus_per_person=2))
PRICES = """\
repositories: {digits: {url: https://git.example/digits.git}}
prices: {"NVIDIA H100": 3}
teams: {vision: {prices: {"NVIDIA H100": 2}}, nlp: {}}
"""


@pytest.mark.parametrize(
    ("user", "others", "answer"),
    [
        (OWNER, OtherPeaks(person=2, team=4), ""),
        (OWNER, OtherPeaks(person=3, team=3), "your other sweeps can use up to 3, and one person can use 4."),
        (
            OWNER,
            OtherPeaks(person=0, team=5),
            "other sweeps of team vision can use up to 5, and team vision can use 6. *Fix:* Set a smaller",
        ),
        ("UOTHER", OtherPeaks(person=1, team=9), "one person can use 2."),
        (ADMIN, OtherPeaks(person=9, team=9), ""),
    ],
)
def test_size_denial_with_a_team_has_its_limits(user, others, answer):
    denied = size_denial(user, PLAN, CLUSTER, others)
    assert answer in denied
    assert bool(answer) == bool(denied)


def test_team_has_its_channels_prices_and_sums_unless_a_person_chose_it():
    assert launch_denial(OWNER, "C2", CLUSTER) == ""
    assert launch_denial(OWNER, "C1", CLUSTER) == "Sweeps can only be started in <#C2>."
    assert launch_denial("UOTHER", "C1", CLUSTER) == ""
    config = replace(CLUSTER, self_assigned=frozenset({OWNER}))
    assert "one person can use 2" in size_denial(OWNER, PLAN, config, OtherPeaks(person=1))
    assert launch_denial(OWNER, "C2", config) == "Sweeps can only be started in <#C1>."
    prices = parse_config(PRICES, "c.yaml").prices
    hourly = {team: price_of(prices_for(prices, team), "NVIDIA H100") for team in ("vision", "nlp", "")}
    assert hourly == {"vision": 2, "nlp": 3, "": 3}
    uses = [UsageSum("ns", team, "U1", "", "NVIDIA H100", 10.0, 5.0, 5.0, 0.0) for team in ("vision", "nlp")]
    sums = grouped(uses, parse_config(PRICES, "c.yaml").prices, lambda use: use.team)
    assert {team: each.cost for team, each in sums.items()} == {"vision": 20.0, "nlp": 30.0}
