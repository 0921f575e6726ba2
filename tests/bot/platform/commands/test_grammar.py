"""The grammar of typed commands, by a small table of its own."""

import re

import pytest

from bot.core.errors import UserError
from bot.platform.commands.grammar import Command, Option, Table, option_help
from bot.platform.commands.option_types import Choice, Duration, Matching, Number, typed
from tests.cases import cases

NAME = Option("name", Matching("[a-z][a-z-]*", "a name"), word=True, hint="Or none.")
OPTIONS = (
    Option("gpus", Number(0, 8), "Machines", "for one boat", "GPUs"),
    Option("color", Choice(("red", "blue")), "Paint"),
    Option("text", typed, "Paint", free=True),
)
TEXT = Option("text", typed, word=True, whole=True)
TABLE = Table(
    prefix="/go",
    commands=(
        Command(
            "",
            "build",
            OPTIONS,
            usage="text=a",
            aliases=("run",),
            elsewhere=lambda key: "Ask Ada." * (key == "crew"),
        ),
        Command(
            "sail",
            "sail",
            (NAME, Option("mode", Choice(("now", "later")), word=True)),
            "Use",
            said="leave",
        ),
        Command("keep", "keep", (NAME, Option("hours", Duration(48), word=True)), "Use"),
        Command("race", "race", (Option("name", NAME.type, word=True, required=True, many=True),), "Use"),
        Command("fleet", "fleet", (), "Fleet", "all boats"),
        Command("fleet move", "move", (NAME, Option("to", typed, required=True, example="PORT")), "Fleet"),
        Command("log", "log", (TEXT,), "Fleet", aliases=("by hand",)),
    ),
    note=" See `/go help`.",
)


def parsed(text, **given):
    found = TABLE.parse(text, given=given)
    return found.command.does, found.values()


@cases(
    ("text", "does", "values"),
    [
        ("", "build", {}),
        ("run gpus=2", "build", {"gpus": 2}),
        ("GPUS=2, Color=RED;", "build", {"gpus": 2, "color": "red"}),
        ("gpus=“2” color=‘blue’ text=“a b,”", "build", {"gpus": 2, "color": "blue", "text": "a b,"}),
        ("gpus=`2`, ; color=*red*?", "build", {"gpus": 2, "color": "red"}),
        ("`gpus=2`\u00a0*color=red*", "build", {"gpus": 2, "color": "red"}),
        ("*gpus=2 color=red*", "build", {"gpus": 2, "color": "red"}),
        ("```\ngpus=2\ncolor=red\n```", "build", {"gpus": 2, "color": "red"}),
        ("text='`a` *b*; &lt;' gpus=2", "build", {"text": "`a` *b*; <", "gpus": 2}),
        ("text=`date`", "build", {"text": "`date`"}),
        ("sail", "sail", {}),
        ("*Sail* `otter`, now?", "sail", {"name": "otter", "mode": "now"}),
        ("sail now", "sail", {"mode": "now"}),
        ("sail name=otter mode=later", "sail", {"name": "otter", "mode": "later"}),
        ("`sail otter`", "sail", {"name": "otter"}),
        ("keep 2d", "keep", {"hours": 48}),
        ("keep otter 8h", "keep", {"name": "otter", "hours": 8}),
        ("race a,b c,", "race", {"name": ("a", "b", "c")}),
        ("fleet?", "fleet", {}),
        ("fleet\u00a0move\totter to=Kiel", "move", {"name": "otter", "to": "Kiel"}),
        ("log  `x` — 'y", "log", {"text": "`x` — 'y"}),
        ("By Hand x\ny", "log", {"text": "x\ny"}),
        ("--gpus 2 --color=red", "build", {"gpus": 2, "color": "red"}),
        ("gpu=2", "build", {"gpus": 2}),
        ("gpus: 2, color:red", "build", {"gpus": 2, "color": "red"}),
        ("gpus = 2 color =red text= b", "build", {"gpus": 2, "color": "red", "text": "b"}),
        ('"gpus": "2", "color": "red"', "build", {"gpus": 2, "color": "red"}),
        ("_gpus=2_ *color=red*", "build", {"gpus": 2, "color": "red"}),
        ("&gt; gpus=2", "build", {"gpus": 2}),
        ("• gpus=2", "build", {"gpus": 2}),
        ("hi, can you please sail otter, thanks!", "sail", {"name": "otter"}),
        ("sail otter tysm :pray: ;)", "sail", {"name": "otter"}),
        ("?", None, {}),
        ("help", None, {}),
    ],
)
def test_command_is_parsed_alike_with_all_that_phones_and_pastes_add(text, does, values):
    assert parsed(text) == (does, values)


@cases(
    ("text", "errors"),
    [
        ("sial", ["Unknown command `sial`. Did you mean sail? See `/go help`."]),
        ("leave &lt;x&gt;", ["Unknown command `leave`. Did you mean sail? See `/go help`."]),
        ("fleet mvoe", ["Unknown command `fleet mvoe`. Did you mean move? See `/go help`."]),
        ("otter", ["Unknown argument: `otter`. Usage: `/go text=a`."]),
        ("a = 2", ["Unknown arguments: `a`, `=`, and `2`. Usage: `/go text=a`."]),
        (
            "gpus=9 gups=1 crew=2 gpus=1 color=green",
            [
                "Unknown option: `gups=`. Did you mean gpus?",
                "Unknown option: `crew=`. Ask Ada.",
                "`gpus=` is set twice.",
                'gpus= must be a whole number from 0 to 8; got "9".',
                'color= must be red or blue; got "green".',
            ],
        ),
        ("zzz=1", ["Unknown option: `zzz=`. Available: gpus, color, and text. All options: `/go help`."]),
        (
            "sail A_B soon",
            ['NAME must be a name; got "A_B". Usage: `/go sail [NAME] [now|later]`. Or none.'],
        ),
        (
            "sail a soon",
            ['MODE must be now or later; got "soon". Usage: `/go sail [NAME] [now|later]`. Or none.'],
        ),
        (
            "keep a 3d",
            ['HOURS must be a time from 1h to 2d; got "3d". Usage: `/go keep [NAME] [HOURS]`. Or none.'],
        ),
        (
            "sail a now b c",
            ["Unknown arguments: `b` and `c`. Usage: `/go sail [NAME] [now|later]`. Or none."],
        ),
        ("fleet move", ["Missing to=. Usage: `/go fleet move [NAME] to=PORT`. Or none."]),
        ("race", ["Missing NAME. Usage: `/go race NAME …`."]),
        ("gpus=2 text='a", ['Unclosed quote. Write `cmd="python train.py"`. Got: gpus=2 text=\'a']),
        ("gpus=" + "1" * 9_000, ["The command can have at most 8,000 characters; got 9,005."]),
    ],
)
def test_command_with_mistakes_names_all_of_them(text, errors):
    with pytest.raises(UserError) as caught:
        parsed(text)
    assert str(caught.value).splitlines() == errors


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("sail", {"name": "otter"}),
        ("sail now", {"name": "otter", "mode": "now"}),
        ("sail `Otter`", {"name": "otter"}),
        ("race b", {"name": ("otter", "b")}),
        ("fleet", {}),
    ],
)
def test_given_option_need_not_be_typed(text, values):
    assert parsed(text, name="otter")[1] == values


def test_help_is_made_of_the_table():
    assert TABLE.help_of("Use") == (
        "*Use*\n• `/go sail [NAME] [now|later]`\n• `/go keep [NAME] [HOURS]`\n• `/go race NAME …`"
    )
    assert option_help(OPTIONS) == "• Machines: `gpus=` (for one boat)\n• Paint: `color=`, `text=`"


@pytest.mark.parametrize(
    ("text", "error"), [("9" * 5_000, "got"), ("٣", "whole number"), ("-1", "from 0 to 8")]
)
def test_number_refuses_what_is_no_small_whole_number(text, error):
    with pytest.raises(UserError, match=re.escape(error)):
        Number(0, 8)("gpus", text, None)
