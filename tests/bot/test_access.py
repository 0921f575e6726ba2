"""Who may: launching by person, place and size; acting by owner, team-mate and administrator."""

import logging
from dataclasses import replace

import pytest

from bot.access import Visitor, may, may_enter, may_hold, may_launch
from bot.asks import hear
from bot.audit import tell_new
from bot.config import Config, Launch, parse_config
from bot.lifecycle import advance
from bot.models import Act, Ask, EventKind, Phase, UserError
from bot.observation import Observation
from bot.teams import Team
from tests.bot.sweeps import ADMIN, CONFIG, NOW, OWNER, PLAN, REPOSITORY, STRANGER, a_sweep

MATE = "UMATE"
TEAM = Team(name="vision", members=(OWNER, MATE), gpus=4)
FRIENDLY = replace(CONFIG, teams=(TEAM,), teammates_may=True)


def launching(**launch) -> Config:
    return replace(CONFIG, launch=Launch(**launch))


@pytest.mark.parametrize(
    ("user", "channel", "config", "answer"),
    [
        (STRANGER, "C1", CONFIG, ""),
        (STRANGER, "C1", launching(people=(OWNER,)), "ask <@UADMIN> to add you"),
        (OWNER, "C1", launching(people=(OWNER,)), ""),
        (ADMIN, "C9", launching(people=(OWNER,), channels=("C1",)), ""),
        (OWNER, "C9", launching(channels=("C1", "C2")), "in <#C1> or <#C2> only"),
        (OWNER, "C2", launching(channels=("C1", "C2")), ""),
    ],
)
def test_who_may_launch_and_where(user, channel, config, answer):
    said = may_launch(user, channel, config)
    assert answer in said
    assert bool(answer) == bool(said)


@pytest.mark.parametrize(
    ("user", "config", "gpus", "answer"),
    [
        (OWNER, CONFIG, 100, ""),
        (OWNER, launching(gpus=8), 4, ""),
        (OWNER, launching(gpus=8), 5, "needs 10 GPUs (2 parallel × 5); the limit is 8 per sweep."),
        (ADMIN, launching(gpus=8), 5, ""),
        (OWNER, FRIENDLY, 3, "needs 6 GPUs (2 parallel × 3); the limit is 4 per sweep of team vision."),
        (STRANGER, FRIENDLY, 3, ""),
        (MATE, replace(FRIENDLY, launch=Launch(gpus=2)), 2, ""),
        (MATE, replace(FRIENDLY, launch=Launch(gpus=2), chosen={MATE}), 2, "the limit is 2 per sweep"),
    ],
)
def test_how_many_gpus_one_sweep_may_hold(user, config, gpus, answer):
    said = may_hold(user, replace(PLAN, gpus=gpus), config)
    assert answer in said
    assert bool(answer) == bool(said)


@pytest.mark.parametrize(
    ("user", "others", "answer"),
    [
        (OWNER, 2, ""),
        (
            OWNER,
            3,
            "can use up to 2 GPUs, your other sweeps can use up to 3, and one person can use 4. *Fix:*",
        ),
        (ADMIN, 3, ""),
    ],
)
def test_how_many_gpus_one_person_may_hold(user, others, answer):
    said = may_hold(user, PLAN, launching(gpus_per_person=4), others)
    assert answer in said
    assert bool(answer) == bool(said)


HOME = Visitor(user="", team="T0HOME", enterprise="E0HOME")


@pytest.mark.parametrize(
    ("who", "config", "answer"),
    [
        ({"team": "T0HOME"}, CONFIG, ""),
        ({}, CONFIG, ""),  # Slack signs what it sends; a body without a team is its own
        ({"team": "T0OTHER"}, CONFIG, "another Slack workspace (`T0OTHER`)"),
        ({"team": "T0OTHER", "enterprise": "E0HOME"}, CONFIG, ""),
        ({"team": "E0OTHER"}, CONFIG, "another Slack workspace (`E0OTHER`)"),
        ({"team": "T0OTHER"}, replace(CONFIG, workspaces=("T0OTHER",)), ""),
        ({"team": "T0OTHER", "enterprise": "E0OTHER"}, replace(CONFIG, workspaces=("E0OTHER",)), ""),
        ({"team": "T0OTHER", "user": ADMIN}, CONFIG, ""),
        ({"team": "T0OTHER", "user": STRANGER}, launching(people=(STRANGER,)), ""),
        ({"team": "T0HOME", "guest": True}, CONFIG, "Guests can't use Sweepbot here."),
        ({"team": "T0HOME", "guest": True}, replace(CONFIG, guests=True), ""),
        ({"team": "T0OTHER", "guest": True}, replace(CONFIG, guests=True), "another Slack workspace"),
    ],
)
def test_who_may_enter(who, config, answer):
    said = may_enter(Visitor(**{"user": OWNER} | who), HOME, config)
    assert answer in said
    assert bool(answer) == bool(said)


@pytest.mark.parametrize(
    ("user", "act", "config", "allowed"),
    [
        (OWNER, Act.CANCEL, CONFIG, True),
        (ADMIN, Act.KILL, CONFIG, True),
        (STRANGER, Act.CANCEL, CONFIG, False),
        (STRANGER, Act.LOGS, CONFIG, True),
        (MATE, Act.CANCEL, FRIENDLY, True),
        (MATE, Act.CANCEL, replace(FRIENDLY, teammates_may=False), False),
        (STRANGER, Act.CANCEL, FRIENDLY, False),
        (MATE, Act.CANCEL, replace(FRIENDLY, chosen={MATE}), False),  # else anybody could join to cancel
    ],
)
def test_who_may_act_on_a_sweep(user, act, config, allowed):
    assert bool(may(user, act, a_sweep(Phase.RUNNING), config)) != allowed


def test_a_refusal_says_who_could():
    said = may(STRANGER, Act.CANCEL, a_sweep(Phase.RUNNING), FRIENDLY)
    assert said.startswith("Only <@UOWNER>, who started `lr-brave-otter`, somebody of the same team, or an ")
    assert said.endswith(" administrator may cancel it.")


def test_what_was_done_and_refused_stands_in_the_history_and_in_the_log(caplog):
    caplog.set_level(logging.INFO, "sweepbot.audit")
    sweep = a_sweep(Phase.RUNNING, submitted=True)
    for user in (STRANGER, OWNER):
        before = sweep
        sweep = hear(sweep, Ask(act=Act.CANCEL, user=user, user_name="x"), Observation(), CONFIG, NOW)
        tell_new(before, sweep)
    assert [(d.user, d.act, bool(d.refused)) for d in sweep.history] == [
        (STRANGER, Act.CANCEL, True),
        (OWNER, Act.CANCEL, False),
    ]
    refused, done = caplog.messages
    assert refused.startswith("USTRANGER wants to cancel lr-brave-otter: refused: Only")
    assert done == "UOWNER wants to cancel lr-brave-otter: allowed"


def test_a_launch_that_is_not_allowed_is_refused_privately():
    config = launching(channels=("C7",))
    sweep = advance(a_sweep(), Observation(plan=PLAN), config, NOW)
    assert sweep.phase is Phase.REFUSED
    [event] = sweep.unsaid
    assert (event.kind, event.to_user) == (EventKind.NOT_ALLOWED, OWNER)
    assert sweep.history[0].act is Act.LAUNCH


def test_a_history_keeps_the_newest():
    sweep = a_sweep(Phase.RUNNING, submitted=True)
    for number in range(70):
        ask = Ask(act=Act.CANCEL, user=f"U{number}", user_name="x")
        sweep = hear(sweep, ask, Observation(), CONFIG, NOW)
    assert (len(sweep.history), sweep.history[-1].user) == (50, "U69")


RULES = f"""
repositories: {{{REPOSITORY.name}: {{url: "{REPOSITORY.url}"}}}}
launch: {{channels: [C012ABC], people: [{OWNER}], gpus: 16}}
teammates_may: true
teams: {{vision: {{members: [{OWNER}], gpus: 4}}}}
"""


def test_the_configuration_says_it_all():
    config = parse_config(RULES, "config.yaml")
    assert config.launch == Launch(channels=("C012ABC",), people=(OWNER,), gpus=16)
    assert (config.teammates_may, config.teams[0].gpus) == (True, 4)


def test_a_channel_by_its_name_is_refused_with_its_line():
    with pytest.raises(UserError, match=r'config.yaml:3: .*"#general" is not a channel id'):
        parse_config(RULES.replace("C012ABC", '"#general"'), "config.yaml")
