"""Teams and prices of the configuration, and their errors."""

import pytest

from bot.core.errors import UserError
from bot.platform.config.policy import parse_config
from bot.platform.config.teams import Price, Team, price_of, team_of
from tests.cases import cases

HEAD = "repositories: {a: {url: https://x.org/a.git}}\n"
VISION = Team(name="vision", namespaces=("vision", "vision-dev"), members=("U1A1", "U2A2"))
SPEECH = Team(name="speech", members=("U3A3",))
PRICES = (Price(model="NVIDIA H100.*", hourly=2.5), Price(model="NVIDIA", hourly=1.0))


def test_parse_config_reads_teams_and_prices_in_order() -> None:
    config = parse_config(
        HEAD
        + """\
teams:
  vision: {namespaces: [vision, vision-dev], members: [U1A1, U2A2]}
  speech: {members: [U3A3]}
prices:
  "NVIDIA H100.*": 2.5
  NVIDIA: 1
""",
        "c.yaml",
    )
    assert (config.teams, config.prices) == ((VISION, SPEECH), PRICES)


@cases(
    ("text", "expected"),
    [
        (
            "teams:\n  Vision: {}",
            "c.yaml:3: teams.Vision: name must have only lowercase letters, digits, and dashes",
        ),
        ("teams:\n  v: {member: [U1A1]}", "c.yaml:3: teams.v.member: unknown key. Did you mean"),
        ("teams:\n  v: {gpus: -1}", "c.yaml:3: teams.v.gpus: must be at least 0; got -1"),
        (
            "teams:\n  v: {members: [ada]}",
            "c.yaml:3: teams.v.members[0]: must be a Slack member ID such as U012ABC, a user group's ID",
        ),
        (
            "teams:\n  v: {namespaces: [x]}\n  w: {namespaces: [x]}",
            "c.yaml:4: teams.w: x is already in namespaces of team v",
        ),
        (
            "teams:\n  v: {members: [U11]}\n  w: {members: [U11]}",
            "c.yaml:4: teams.w: U11 is already in members of team v",
        ),
        ("teams:\n  v: {channel: vision}", "c.yaml:3: teams.v.channel: must be a Slack channel ID such as"),
        ("prices:\n  A(: 1", "c.yaml:3: prices.A(: invalid regular expression: "),
        ("prices:\n  A: -1", "c.yaml:3: prices.A: must be at least 0; got -1"),
        ("prices:\n  A: much", 'c.yaml:3: prices.A: must be a number; got "much"'),
    ],
)
def test_parse_config_invalid_team_or_price_names_its_line(text: str, expected: str) -> None:
    with pytest.raises(UserError) as error:
        parse_config(HEAD + text, "c.yaml")
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("namespace", "owner", "team"),
    [
        ("vision", "", "vision"),
        ("vision", "U3A3", "vision"),
        ("sweeps", "U3A3", "speech"),
        ("sweeps", "U9A9", ""),
        ("sweeps", "", ""),
    ],
)
def test_team_of_prefers_the_namespace(namespace: str, owner: str, team: str) -> None:
    assert team_of((VISION, SPEECH), namespace, owner) == team


@pytest.mark.parametrize(
    ("model", "hourly"),
    [("NVIDIA H100 80GB HBM3", 2.5), ("NVIDIA A10", 1.0), ("AMD MI300X", None), ("", None)],
)
def test_price_of_matches_whole_words_at_the_start(model: str, hourly: float | None) -> None:
    assert price_of(PRICES, model) == hourly


CARDS = {
    "NVIDIA": 0.1,
    "NVIDIA L4": 0.5,
    "NVIDIA L40S": 1.2,
    "NVIDIA A100": 1.5,
    "NVIDIA A100-(SXM4|SXM5|SXM6).*": 1.7,
    "NVIDIA A100-SXM4-80GB": 2.0,
    "NVIDIA A100-SXM4-80GB MIG 7g": 1.9,
    "NVIDIA A30": 0.8,
    "NVIDIA H.*": 3.0,
    "NVIDIA H200.*": 4.0,
    "Tesla T": 9.0,
    ".*V100.*": 0.7,
}


@cases(
    ("model", "hourly"),
    [
        ("NVIDIA L4", 0.5),
        ("NVIDIA L40S", 1.2),
        ("NVIDIA L40", 0.1),
        ("NVIDIA A100-PCIE-40GB", 1.5),
        ("NVIDIA A100-SXM4-80GB", 2.0),
        ("NVIDIA H100 80GB HBM3", 3.0),
        ("NVIDIA H200", 4.0),
        ("Tesla T4", None),
        ("Tesla V100-SXM2-32GB", 0.7),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 2.0 * 3 / 7),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb+me", 2.0 / 7),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb shared 1/2", 2.0 * 3 / 7 / 2),
        ("NVIDIA H100 80GB HBM3 shared 1/4", 0.75),
        ("Tesla T4 shared 1/4", None),
        ("NVIDIA A100-SXM4-80GB MIG 7g.80gb", 1.9),
        ("NVIDIA A30 MIG 1g.6gb", 0.2),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 3.0 / 7),
    ],
)
def test_price_of_prefers_the_longest_match(model: str, hourly: float | None) -> None:
    prices = tuple(Price(model=name, hourly=each) for name, each in CARDS.items())
    expected = hourly if hourly is None else pytest.approx(hourly)
    assert price_of(prices, model) == expected
    assert price_of(prices[::-1], model) == expected
    # Nodes' labels, and dcgm-exporter's --replace-blanks-in-model-name; shares are no part of it.
    name, shared, share = model.partition(" shared ")
    assert price_of(prices, name.replace(" ", "-") + shared + share) == expected


@pytest.mark.parametrize(
    "pattern", ["NVIDIA RTX A[0-9]+", r"NVIDIA\ RTX\ A6000", "NVIDIA[ _]RTX A6000", "NVIDIA RTX [ A]6000"]
)
def test_price_of_takes_blanks_in_any_pattern(pattern: str) -> None:
    prices = (Price(model=pattern, hourly=1.0),)
    assert price_of(prices, "NVIDIA RTX A6000") == 1.0


def test_price_of_equal_matches_is_the_first() -> None:
    prices = (Price(model="NVIDIA .4", hourly=1.0), Price(model="NVIDIA L4", hourly=2.0))
    assert (price_of(prices, "NVIDIA L4"), price_of(prices[::-1], "NVIDIA L4")) == (1.0, 2.0)
