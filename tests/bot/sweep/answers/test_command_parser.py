"""Find the sweep of a command: by its name, a part of it, or as the only match."""

from dataclasses import fields, replace

import pytest

from bot.core.commands import Action, Command
from bot.core.errors import UserError
from bot.core.record import Phase
from bot.core.sweep_summary import SweepSummary
from bot.platform.commands.sentence import Names, read_sentence
from bot.platform.config.teams import Team
from bot.sweep.answers.command_parser import (
    COMMANDS,
    TABLE,
    ParsedCommand,
    choose,
    parse_command,
    selected,
)
from bot.sweep.answers.messages import HISTORY_VERBS
from bot.sweep.decisions.commands import RULES
from bot.sweep.launch.options import LAUNCH
from tests.bot.factories import ADMIN, CONFIG
from tests.cases import cases


def sweep(sweep_id, user="UADA", phase=Phase.RUNNING):
    return SweepSummary(id=sweep_id, user=user, user_name=user.lower(), channel="C1", phase=phase)


SWEEPS = [
    sweep("lr-brave-otter"),
    sweep("lr-calm-finch", "UGRACE"),
    sweep("lr-calm-otter", "UGRACE", Phase.SUCCEEDED),
    sweep("big-calm-yak", "ULINUS", Phase.SUCCEEDED),
]


@cases(
    ("text", "here", "parsed"),
    [
        ("cancel", "", ParsedCommand(action=Action.CANCEL)),
        ("cancel lr-brave-otter", "", ParsedCommand(action=Action.CANCEL, sweep="lr-brave-otter")),
        ("cancel `otter` x1", "", ParsedCommand(action=Action.KILL, sweep="otter", trial="x1")),
        ("cancel x1", "lr-a-b", ParsedCommand(action=Action.KILL, sweep="lr-a-b", trial="x1")),
        ("cancel lr-a-b", "lr-a-b", ParsedCommand(action=Action.CANCEL, sweep="lr-a-b")),
        (
            "raise otter budget=$90",
            "",
            ParsedCommand(action=Action.BUDGET, sweep="otter", options={"budget": "$90"}),
        ),
        ("extend trials=9", "", ParsedCommand(action=Action.EXTEND, options={"trials": 9})),
        (
            "extend otter trials=9",
            "",
            ParsedCommand(action=Action.EXTEND, sweep="otter", options={"trials": 9}),
        ),
        ("logs otter x1", "", ParsedCommand(action=Action.LOGS, sweep="otter", trial="x1")),
        ("rerun", "", ParsedCommand(action=Action.RERUN)),
        (
            "rerun trials=9 cmd='a b'",
            "",
            ParsedCommand(action=Action.RERUN, options={"changes": "trials=9 cmd='a b'"}),
        ),
        (
            "rerun otter trials=9",
            "",
            ParsedCommand(action=Action.RERUN, sweep="otter", options={"changes": "trials=9"}),
        ),
        (
            "rerun gpus=2",
            "lr-a-b",
            ParsedCommand(action=Action.RERUN, sweep="lr-a-b", options={"changes": "gpus=2"}),
        ),
    ],
)
def test_parse_command_reads_words(text, here, parsed):
    assert parse_command(text, here) == parsed


@cases(
    ("action", "named", "user", "chosen"),
    [
        (Action.CANCEL, "", "UADA", "lr-brave-otter"),
        (Action.CANCEL, "finch", "UADA", "lr-calm-finch"),
        (Action.CANCEL, "big", "UADA", "big-calm-yak"),
        (Action.CANCEL, "", "UGRACE", "lr-calm-finch"),
        (Action.EXTEND, "", "UGRACE", "lr-calm-otter"),
        (Action.LOGS, "", "ULINUS", "big-calm-yak"),
        (Action.RESULTS, "gone-since-long", "UADA", "gone-since-long"),
        (Action.CANCEL, "otter", "ULINUS", "lr-brave-otter"),
        (Action.EXTEND, "lr-calm", "UGRACE", "lr-calm-otter"),
        (Action.PROMOTE, "lr-calm", "UGRACE", "lr-calm-otter"),
        (Action.COMPARE, "lr-calm", "UADA", "lr-calm-otter"),
        (Action.CANCEL, "lr", "UADA", "lr-brave-otter"),
        (Action.CANCEL, "brave", "UADA", "lr-brave-otter"),
        (Action.LOGS, "lr", "UADA", "lr-brave-otter"),
        (Action.LOGS, "lr-calm", "UGRACE", "lr-calm-finch"),
        (Action.LOGS, "lr-calm", "UADA", "lr-calm-finch"),
        (Action.RESULTS, "yak", "UADA", "big-calm-yak"),
    ],
)
def test_command_resolves_the_named_sweep(action, named, user, chosen):
    assert choose(ParsedCommand(action=action, sweep=named), user, SWEEPS, CONFIG).sweep == chosen


@pytest.mark.parametrize(
    ("action", "named", "user", "answer"),
    [
        (Action.CANCEL, "lr", "ULINUS", "several sweeps. Name one: `lr-brave-otter`, `lr-calm-finch`."),
        (Action.CANCEL, "brav", "ULINUS", "No sweep named `brav`. Did you mean lr-brave-otter"),
        (Action.CANCEL, "", "ULINUS", "You have no running sweeps"),
        (Action.EXTEND, "", "UADA", "You have no finished sweeps"),
        (Action.CANCEL, "brave-oter", "UADA", "Did you mean lr-brave-otter"),
    ],
)
def test_command_without_a_unique_sweep_lists_the_choices(action, named, user, answer):
    with pytest.raises(UserError, match=answer):
        choose(ParsedCommand(action=action, sweep=named), user, SWEEPS, CONFIG)


def test_compared_sweeps_differ():
    for text in ("compare lr-calm lr-calm-otter", "compare yak otter lr-calm"):
        with pytest.raises(UserError, match="Two of the names mean `lr-calm-otter`"):
            choose(parse_command(text), "UGRACE", SWEEPS, CONFIG)


STATES = [
    sweep("lr-brave-otter"),
    replace(sweep("lr-calm-finch", phase=Phase.PENDING), first_only=True),
    replace(sweep("lr-late-yak", phase=Phase.HELD), first_only=True),
    replace(sweep("big-red-fox"), queued=True),
    replace(sweep("big-old-elk", phase=Phase.STOPPING), queued=True),
    sweep("big-new-elk", "UGRACE"),
    sweep("gan-blue-hen", "UGRACE", phase=Phase.PAUSED),
]


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("retry", "lr-late-yak"),
        ("retry lr", "lr-late-yak"),
        ("open finch", "lr-calm-finch"),
        ("open otter", "lr-brave-otter"),  # the answer says why not
        ("queue raise", "big-red-fox"),
        ("queue hold big", "big-red-fox"),
        ("queue move queue=a", "big-red-fox"),
        ("pause", "big-new-elk"),
        ("resume", "gan-blue-hen"),
    ],
)
def test_command_without_a_full_name_means_the_sweep_to_which_it_applies(text, chosen):
    [owner] = [each.user for each in STATES if each.id == chosen]
    assert choose(parse_command(text), owner, STATES, CONFIG).sweep == chosen


@pytest.mark.parametrize(
    ("text", "user", "answer"),
    [
        ("open", "UADA", "Several of your sweeps match. Name one: `lr-calm-finch`, `lr-late-yak`."),
        ("open", "UGRACE", "You have no sweeps that wait for their first trial. Name another sweep; see "),
        ("retry", "UGRACE", "You have no sweeps on hold."),
        ("queue lower", "UGRACE", "You have no sweeps in a Kueue queue."),
        ("promote", "UGRACE", "You have no finished sweeps."),
        ("pause", "ULINUS", "You have no running sweeps."),
        ("logs", "ULINUS", "You have no sweeps."),
    ],
)
def test_command_lists_only_sweeps_to_which_it_applies(text, user, answer):
    with pytest.raises(UserError) as error:
        choose(parse_command(text), user, STATES, CONFIG)
    assert str(error.value).startswith(answer)


def test_others_sweeps_are_named_only_where_they_can_be_meant():
    sweeps = [*SWEEPS, sweep("lr-vain-otter", phase=Phase.REFUSED)]
    with pytest.raises(UserError) as error:
        choose(ParsedCommand(action=Action.LOGS, sweep="zzz"), "UADA", sweeps, CONFIG)
    assert str(error.value) == ("No sweep named `zzz`. Available: lr-brave-otter and lr-calm-finch.")
    with pytest.raises(UserError, match="No sweep named `vain`"):
        choose(ParsedCommand(action=Action.LOGS, sweep="vain"), "UADA", sweeps, CONFIG)
    assert (
        choose(ParsedCommand(action=Action.RERUN, sweep="lr-vain-otter"), "UADA", sweeps, CONFIG).sweep
        == "lr-vain-otter"
    )
    mine = sweep("lr-brave-otter")
    assert (
        choose(ParsedCommand(action=Action.CANCEL, sweep="lr"), "UADA", [*ENDED, mine], CONFIG).sweep
        == mine.id
    )
    assert (
        choose(ParsedCommand(action=Action.LOGS, sweep="lr"), "UADA", [*ENDED, mine], CONFIG).sweep == mine.id
    )
    sweeps = [sweep("lr-brave-otter", ADMIN), sweep("lr-calm-finch", "UGRACE")]
    with pytest.raises(UserError, match="`lr-brave-otter`, `lr-calm-finch`"):
        choose(ParsedCommand(action=Action.CANCEL, sweep="lr"), ADMIN, sweeps, CONFIG)
    mates = replace(CONFIG, teams=(Team(name="vision", members=("UADA", "UGRACE")),), teammates_can_act=True)
    with pytest.raises(UserError, match="matches several sweeps"):
        choose(ParsedCommand(action=Action.DRAIN, sweep="lr"), "UADA", SWEEPS[:2], mates)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("cancle otter", "Unknown command `cancle`. Did you mean cancel?"),
        ("Stauts", "Unknown command `stauts`. Did you mean status?"),
        ("lsit\nmine", "Unknown command `lsit`. Did you mean list?"),
        ("hepl", "Unknown command `hepl`. Did you mean help?"),
        ("cancle&lt;", "Unknown command `cancle<`. Did you mean cancel?"),
        ("kill otter", "Unknown command `kill`. Did you mean cancel?"),
        ("queue rasie otter", "Unknown command `queue rasie`. Did you mean raise or release?"),
    ],
)
def test_misspelled_command_gets_a_suggestion(text, meant):
    with pytest.raises(UserError) as error:
        TABLE.find(text)
    assert str(error.value) == meant


@pytest.mark.parametrize("text", ["stop = x", "", "main", "branch main", "branch=main space=lr", "lists = x"])
def test_text_that_resembles_no_command_is_a_new_sweep(text):
    assert TABLE.find(text)[0] is LAUNCH


def test_list_mine_has_all_own_sweeps_and_a_command_those_that_are_active():
    mine = [sweep(f"lr-{animal}-yak") for animal in "abcdefghij"]
    with pytest.raises(UserError, match=r"Several of your sweeps match.*`lr-a-yak`.* and 2 more"):
        choose(ParsedCommand(action=Action.CANCEL), "UADA", mine, CONFIG)
    assert [s.id for s in selected("mine", "UGRACE", SWEEPS, CONFIG)] == ["lr-calm-finch", "lr-calm-otter"]
    assert [s.id for s in selected("", "ULINUS", SWEEPS, CONFIG)] == [
        "lr-brave-otter",
        "lr-calm-finch",
        "big-calm-yak",
    ]


ENDED = [sweep(f"lr-old-{number}", "UGRACE", Phase.SUCCEEDED) for number in range(60)]


@pytest.mark.parametrize(
    ("text", "user", "parsed"),
    [
        ("cancel k3x9z", "UADA", ParsedCommand(action=Action.KILL, sweep="lr-brave-otter", trial="k3x9z")),
        ("logs K3x9z", "UADA", ParsedCommand(action=Action.LOGS, sweep="lr-brave-otter", trial="k3x9z")),
        (
            "cancel bcdfghjk",
            "UADA",
            ParsedCommand(action=Action.KILL, sweep="lr-brave-otter", trial="bcdfghjk"),
        ),
        (
            "cancel lr-calm-finch-7h2k9d4x",
            "UADA",
            ParsedCommand(action=Action.KILL, sweep="lr-calm-finch", trial="lr-calm-finch-7h2k9d4x"),
        ),
    ],
)
def test_trial_can_be_named_without_its_sweep(text, user, parsed):
    assert choose(parse_command(text), user, SWEEPS, CONFIG) == parsed


@pytest.mark.parametrize(
    ("text", "user", "answer"),
    [
        (
            "cancel k3x9z",
            "ULINUS",
            "No sweep named `k3x9z`. If this is a trial, .*`/sweep cancel SWEEP k3x9z`",
        ),
        ("drain k3x9z", "UADA", "No sweep named `k3x9z`"),
        ("cancel fox", "UADA", "No sweep named `fox`"),
        ("cancel lr-brave-otter-lr-brave-otter-lr-brave-otter", "UADA", "isn't a sweep name"),
        ("cancel lr-gone-otter-lr-gone-otter-7h2", "UADA", "No sweep named"),
        ("rerun a-b-../../secrets", "UADA", "isn't a sweep name"),
    ],
)
def test_unknown_name_is_reported(text, user, answer):
    with pytest.raises(UserError, match=answer):
        choose(parse_command(text), user, SWEEPS, CONFIG)


def test_usage_of_compare_does_not_say_that_a_sweep_can_be_omitted():
    with pytest.raises(UserError, match=r"2 to 6 ended sweeps\. SWEEP is a sweep's name, or a part of it\.$"):
        parse_command("compare lr-brave-otter")


@pytest.mark.parametrize("word", ["lr-a-b.", "#4", "/s", "!", "why?no"])
def test_word_that_names_no_trial_is_not_sent_as_one(word):
    """`cancel lr-a-b.` in its thread is offered without the period, not answered with a list of trials."""
    with pytest.raises(UserError, match="isn't a trial"):
        parse_command(f"cancel {word}", "lr-a-b")


@pytest.mark.parametrize("command", [each for each in COMMANDS if each.does and not each.does.starts_sweep])
def test_command_has_a_field_for_each_option(command):
    known = {"sweep", "mode", *(each.name for each in fields(Command))}  # the mode becomes the action
    assert command.by_key.keys() <= known


def test_history_words_each_command_that_changes_a_sweep():
    assert RULES.keys() <= HISTORY_VERBS.keys()


def test_share_of_a_launch_without_gpus_has_none():
    names = Names(config=CONFIG, last={"gpus": "0"})
    assert read_sentence("the same gpus", TABLE, LAUNCH, names).parsed.options == {"gpus": "0"}
