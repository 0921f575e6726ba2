"""What can be typed after `/sweep`, `/gpus`, and in a thread; what help and documents say of it."""

from pathlib import Path

import pytest

from bot.core.commands import Action
from bot.core.errors import UserError
from bot.measure.gpus.command import GROUP, ParsedCommand
from bot.measure.gpus.command import parse_command as parse_gpus
from bot.platform.config.policy import Config
from bot.platform.config.repositories import Repository
from bot.platform.config.teams import Team
from bot.platform.slack.mrkdwn import cut
from bot.sweep.answers.command_parser import parse_command as parse_sweep
from bot.sweep.launch.command_line import parse as parse_launch
from bot.sweep.launch.options import OPTIONS
from bot.workspace_table import GPUS
from handlers.sweep_commands import HELP as SWEEP_HELP
from handlers.sweep_commands import SWEEP
from tests.cases import cases

DOCS = Path(__file__).parents[2] / "docs"
GPUS_HELP = GPUS.help_of(GROUP)
TEAMS = (Team(name="vision", queue="vision"), Team(name="speech"))
CONFIG = Config(
    repositories=(Repository(name="digits", url="https://git.example/digits"),),
    teams=TEAMS,
    admins=("UADMIN",),
)


def gpus(text):
    return parse_gpus(text, CONFIG, GPUS)


def error_of(parse, text):
    with pytest.raises(UserError) as refused:
        parse(text)
    return str(refused.value)


# However these are typed, they are read alike after each command, also after those of workspaces.
GPUS_1 = ("gpus=1", "GPUS=1,", "gpus=“1”", "gpus='1';", "`gpus=1`", "*gpus=1*", "gpus=`1`?")
OTTER = ("otter", "Otter,", "“otter”", "`otter`", "*otter*", "otter?", "\u00a0otter")


@pytest.mark.parametrize("gpus_", GPUS_1)
def test_option_is_read_alike_after_each_command(gpus_):
    assert parse_launch(f"branch=main space=lr {gpus_}", CONFIG).gpus == 1
    assert parse_sweep(f"extend {gpus_.lower().replace('gpus', 'trials')}").options == {"trials": 1}


@pytest.mark.parametrize("name", OTTER)
def test_name_is_read_alike_after_each_command(name):
    assert parse_sweep(f"logs {name}").sweep == "otter"
    assert parse_sweep(f"queue move {name} queue=a").sweep == "otter"
    assert parse_sweep(f"rerun {name} trials=9").sweep == "otter"


@cases(
    ("text", "parsed"),
    [
        ("", ParsedCommand(view="free")),
        (" FREE ", ParsedCommand(view="free")),
        ("by team", ParsedCommand(view="team")),
        ("by  node", ParsedCommand(view="nodes")),
        ("nodes?", ParsedCommand(view="nodes")),
        ("help", ParsedCommand(view="help")),
        ("bill", ParsedCommand(view="bill")),
        ("bill Vision 2026-10", ParsedCommand(view="bill", team="vision", month="2026-10")),
        ("bill 2026-1", ParsedCommand(view="bill", month="2026-01")),
        ("bill LAST speech", ParsedCommand(view="bill", team="speech", month="last")),
    ],
)
def test_gpus_command_is_parsed(text, parsed):
    assert gpus(text) == parsed


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("fre", "Unknown command `fre`. Did you mean free?"),
        (
            "bill visoin",
            'TEAM must be a configured team; got "visoin". Did you mean vision? Usage: `/gpus bill',
        ),
        (
            "bill vision 2026-13",
            'MONTH must be 2026-11 or last; got "2026-13". Usage: `/gpus bill [TEAM] [MONTH]`',
        ),
        ("nodes now", "Unknown argument: `now`. Usage: `/gpus nodes`"),
    ],
)
def test_gpus_command_with_a_mistake_names_it(text, error):
    assert error_of(gpus, text).startswith(error)


def assert_documented(table, text, document):
    documented = (DOCS / f"{document}.md").read_text()
    assert cut(text) == text, "fits one message"
    for command in table.commands:
        assert not command.group or command.name in text
        assert not command.group or command.name in documented


@pytest.mark.parametrize(("table", "text"), [(SWEEP, SWEEP_HELP), (GPUS, GPUS_HELP)])
def test_help_and_documents_name_each_command_and_option(table, text):
    assert_documented(table, text, "commands")
    for option in OPTIONS:
        assert f"`{option.key}=" in SWEEP_HELP
        assert f"| `{option.key}=` |" in (DOCS / "commands.md").read_text()


def test_help_shows_what_a_command_takes():
    assert "• `/sweep pause [SWEEP] [now|after-trials]`: hold until `resume`; `now` stops" in SWEEP_HELP
    assert "• `/gpus bill [TEAM] [MONTH]`: GPU-hours and cost" in GPUS_HELP


def test_help_shows_commands_that_work():
    shown = [
        part.removeprefix("/sweep ") for part in SWEEP_HELP.split("`") if part.startswith("/sweep branch=")
    ]
    assert [parse_launch(command, CONFIG).space for command in shown] == ["lr", "seeds"]


def test_queue_is_named_in_any_case():
    assert parse_sweep("queue move otter queue=Research,").options == {"queue": "research"}


def test_rerun_passes_on_the_options_in_the_one_syntax():
    parsed = parse_sweep("rerun otter, --name 'a  b' gpu: 2 cmd=“t”")
    assert (parsed.action, parsed.sweep) == (Action.RERUN, "otter")
    assert parsed.options["changes"] == "name='a  b' gpus=2 cmd=t"
    assert "`colour=`" in error_of(parse_sweep, "rerun otter colour=red")
