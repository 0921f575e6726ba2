"""Permissions: who can use Sweepbot, start sweeps, and act on them."""

import logging
from dataclasses import replace

import pytest

from bot.core.commands import Action, Command
from bot.core.errors import UserError
from bot.core.record import Phase
from bot.platform.config.limits import Launch
from bot.platform.config.permissions import (
    OtherPeaks,
    Visitor,
    denial,
    doctor_denial,
    entry_denial,
    launch_denial,
    most_parallel,
    namespace_denial,
    queue_member,
    size_denial,
)
from bot.platform.config.policy import Config, parse_config
from bot.platform.config.queues import Member
from bot.platform.config.teams import Team
from bot.platform.runtime.audit import write_new_entries
from bot.sweep.decisions.advance import advance
from bot.sweep.decisions.commands import apply_command
from bot.sweep.model.observation import Observation
from tests.bot.factories import ADMIN, CONFIG, NOW, OWNER, PLAN, REPOSITORY, STRANGER, a_sweep
from tests.cases import cases

MATE = "UMATE"
TEAM = Team(name="vision", members=(OWNER, MATE), gpus=4)
FRIENDLY = replace(CONFIG, teams=(TEAM,), teammates_can_act=True)


def launching(**launch) -> Config:
    return replace(CONFIG, launch=Launch(**launch))


@pytest.mark.parametrize(
    ("user", "channel", "config", "answer"),
    [
        (STRANGER, "C1", CONFIG, ""),
        (STRANGER, "C1", launching(people=(OWNER,)), "Ask <@UADMIN> to add you"),
        (OWNER, "C1", launching(people=(OWNER,)), ""),
        (ADMIN, "C9", launching(people=(OWNER,), channels=("C1",)), ""),
        (OWNER, "C9", launching(channels=("C1", "C2")), "only be started in <#C1> or <#C2>."),
        (OWNER, "C2", launching(channels=("C1", "C2")), ""),
    ],
)
def test_launch_denial_depends_on_user_and_channel(user, channel, config, answer):
    denied = launch_denial(user, channel, config)
    assert answer in denied
    assert bool(answer) == bool(denied)


@cases(
    ("user", "config", "gpus", "answer"),
    [
        (OWNER, CONFIG, 100, ""),
        (OWNER, launching(gpus=8), 4, ""),
        (OWNER, launching(gpus=8), 5, "needs 10 GPUs (2 parallel × 5 GPUs); the limit is 8 per sweep."),
        (ADMIN, launching(gpus=8), 5, ""),
        (OWNER, FRIENDLY, 3, "needs 6 GPUs (2 parallel × 3 GPUs); the limit is 4 per sweep of team vision."),
        (STRANGER, FRIENDLY, 3, ""),
        (
            OWNER,
            replace(FRIENDLY, teams=(replace(TEAM, gpus=None),), launch=Launch(gpus=2)),
            2,
            "the limit is 2 per sweep. Lower",
        ),
        (MATE, replace(FRIENDLY, launch=Launch(gpus=2)), 2, ""),
        (MATE, replace(FRIENDLY, launch=Launch(gpus=2), self_assigned={MATE}), 2, "the limit is 2 per sweep"),
    ],
)
def test_size_denial_limits_one_sweep(user, config, gpus, answer):
    denied = size_denial(user, replace(PLAN, gpus=gpus), config)
    assert answer in denied
    assert bool(answer) == bool(denied)


def test_size_denial_names_the_nodes_and_without_other_sweeps_allows_the_whole_limit():
    assert size_denial(OWNER, replace(PLAN, nodes=2), launching(gpus=3)) == (
        "This sweep needs 4 GPUs (2 parallel × 2 nodes × 1 GPU); the limit is 3 per sweep. "
        "Lower parallel=, nodes=, or gpus=, or ask <@UADMIN>."
    )
    assert size_denial(OWNER, replace(PLAN, gpus=2), launching(gpus_per_person=4)) == ""


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
def test_size_denial_limits_one_person(user, others, answer):
    denied = size_denial(user, PLAN, launching(gpus_per_person=4), OtherPeaks(person=others))
    assert answer in denied
    assert bool(answer) == bool(denied)


@pytest.mark.parametrize(
    ("user", "config", "answer"),
    [
        (ADMIN, CONFIG, ""),
        (OWNER, CONFIG, "Only admins can do that: <@UADMIN>."),
        (
            ADMIN,
            replace(CONFIG, admins=()),
            "No admins are configured. Add them under `admins:` in the SWEEPBOT_CONFIG file.",
        ),
    ],
)
def test_doctor_denial_is_for_admins(user, config, answer):
    assert doctor_denial(user, config) == answer


HOME = Visitor(user="", team="T0HOME", enterprise="E0HOME")


@cases(
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
def test_entry_denial_depends_on_workspace_and_guest(who, config, answer):
    denied = entry_denial(Visitor(**{"user": OWNER} | who), HOME, config)
    assert answer in denied
    assert bool(answer) == bool(denied)


@cases(
    ("user", "action", "config", "allowed"),
    [
        (OWNER, Action.CANCEL, CONFIG, True),
        (ADMIN, Action.KILL, CONFIG, True),
        (STRANGER, Action.CANCEL, CONFIG, False),
        (STRANGER, Action.LOGS, CONFIG, True),
        (MATE, Action.CANCEL, FRIENDLY, True),
        (MATE, Action.CANCEL, replace(FRIENDLY, teammates_can_act=False), False),
        (STRANGER, Action.CANCEL, FRIENDLY, False),
        (
            MATE,
            Action.CANCEL,
            replace(FRIENDLY, self_assigned={MATE}),
            False,
        ),  # else all users could join to cancel
    ],
)
def test_denial_depends_on_ownership_and_teams(user, action, config, allowed):
    assert bool(denial(user, action, a_sweep(Phase.RUNNING), config)) != allowed


def test_denial_names_who_can_and_a_launch_is_answered_ephemerally():
    denied = denial(STRANGER, Action.CANCEL, a_sweep(Phase.RUNNING), FRIENDLY)
    assert denied == "Only <@UOWNER> (owner), a teammate, or an admin can cancel `lr-brave-otter`."
    denied = denial(
        STRANGER, Action.CANCEL, a_sweep(Phase.RUNNING), replace(FRIENDLY, teammates_can_act=False)
    )
    assert denied == "Only <@UOWNER> (owner) or an admin can cancel `lr-brave-otter`."
    config = launching(channels=("C7",))
    sweep = advance(a_sweep(), Observation(plan=PLAN), config, NOW)
    assert sweep.phase is Phase.REFUSED
    [event] = sweep.outbox
    assert (event.kind, event.to_user) == ("not_allowed", OWNER)
    assert sweep.audit_log[0].action is Action.LAUNCH


LAB = replace(FRIENDLY, teams=(replace(TEAM, namespaces=("vision",), queue="lab"),))


@pytest.mark.parametrize(
    ("user", "namespace", "config", "allowed"),
    [
        (ADMIN, "speech", LAB, True),
        (MATE, "vision", LAB, True),
        (MATE, "speech", LAB, False),
        (STRANGER, "vision", LAB, False),
        (MATE, "vision", replace(LAB, self_assigned={MATE}), False),
    ],
)
def test_namespace_denial_is_for_all_but_admins_and_its_team(user, namespace, config, allowed):
    denied = f"Only admins, and the team with the namespace `{namespace}`, can do this. Ask <@UADMIN>."
    assert namespace_denial(user, namespace, config) == ("" if allowed else denied)


def test_queue_member_has_a_team_that_others_gave():
    assert queue_member(ADMIN, LAB) == Member(user=ADMIN, admin=True)
    assert queue_member(MATE, LAB) == Member(user=MATE, team="vision", team_queue="lab")
    assert queue_member(MATE, replace(LAB, self_assigned={MATE})) == Member(user=MATE)


def test_audit_log_has_the_commands_and_the_newest_entries(caplog):
    caplog.set_level(logging.INFO, "sweepbot.audit")
    sweep = a_sweep(Phase.RUNNING, submitted=True)
    for user in (STRANGER, OWNER):
        before = sweep
        sweep = apply_command(
            sweep, Command(action=Action.CANCEL, user=user, user_name="x"), Observation(), CONFIG, NOW
        )
        write_new_entries(before, sweep)
    assert [(d.user, d.action, bool(d.refused)) for d in sweep.audit_log] == [
        (STRANGER, Action.CANCEL, True),
        (OWNER, Action.CANCEL, False),
    ]
    refused, done = caplog.messages
    assert refused.startswith("user=USTRANGER action=cancel sweep=lr-brave-otter: denied: Only")
    assert done == "user=UOWNER action=cancel sweep=lr-brave-otter: allowed"
    sweep = a_sweep(Phase.RUNNING, submitted=True)
    for number in range(70):
        command = Command(action=Action.CANCEL, user=f"U{number}", user_name="x")
        sweep = apply_command(sweep, command, Observation(), CONFIG, NOW)
    assert (len(sweep.audit_log), sweep.audit_log[-1].user) == (50, "U69")


RULES = f"""
repositories: {{{REPOSITORY.name}: {{url: "{REPOSITORY.url}"}}}}
launch: {{channels: [C012ABC], people: [{OWNER}], gpus: 16}}
teammates_can_act: true
teams: {{vision: {{members: [{OWNER}], gpus: 4}}}}
"""


def test_parse_config_reads_all_permissions_and_no_channel_name():
    config = parse_config(RULES, "config.yaml")
    assert config.launch == Launch(channels=("C012ABC",), people=(OWNER,), gpus=16)
    assert (config.teammates_can_act, config.teams[0].gpus) == (True, 4)
    with pytest.raises(UserError, match=r'config.yaml:3: .*must be a Slack channel ID .* got "#general"'):
        parse_config(RULES.replace("C012ABC", '"#general"'), "config.yaml")


AUTO = replace(PLAN, gpus=2, space=replace(PLAN.space, parallel=8, auto=True))


@pytest.mark.parametrize(
    ("user", "launch", "others", "most"),
    [
        (OWNER, {}, OtherPeaks(), 8),
        (OWNER, {"gpus": 12}, OtherPeaks(), 6),
        (OWNER, {"gpus_per_person": 12}, OtherPeaks(person=5), 3),
        (OWNER, {"gpus_per_person": 12}, OtherPeaks(person=12), 1),
        (ADMIN, {"gpus": 2}, OtherPeaks(), 8),
    ],
)
def test_auto_parallel_sweep_grows_within_the_limits(user, launch, others, most):
    assert most_parallel(user, AUTO, launching(**launch), others) == most


def test_auto_parallel_sweep_grows_within_its_teams_limit_from_one_trial():
    team = Team(name="vision", members=(OWNER,), gpus_total=10)
    assert most_parallel(OWNER, AUTO, replace(CONFIG, teams=(team,)), OtherPeaks(team=4)) == 3
    assert size_denial(OWNER, AUTO, launching(gpus=2)) == ""
    assert "(1 parallel × 2 GPUs)" in size_denial(OWNER, AUTO, launching(gpus=1))
