"""`/sweep help` names all options and commands, and fits one message."""

import pytest

from bot.answers.command_parser import COMMANDS
from bot.config.policy import Config
from bot.config.repositories import Repository
from bot.launch.command_line import parse
from bot.launch.help_text import HELP
from bot.launch.options import READERS
from bot.slack.mrkdwn import cut


@pytest.mark.parametrize("option", READERS)
def test_help_names_each_option(option: str) -> None:
    assert f"{option}=" in HELP


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_each_command(command: str) -> None:
    assert command in HELP


def test_help_fits_one_message() -> None:
    assert cut(HELP) == HELP


def test_help_shows_a_working_command() -> None:
    commands = [part.removeprefix("/sweep ") for part in HELP.split("`") if part.startswith("/sweep ")]
    sweeps = [command for command in commands if command.startswith("branch=")]
    config = Config(repositories=(Repository(name="digits", url="https://git.example/digits"),))
    assert [parse(command, config).space for command in sweeps] == ["lr", "seeds"]
