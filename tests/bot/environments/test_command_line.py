from dataclasses import replace

import pytest

from bot.config.profiles import Profile
from bot.core.errors import UserError
from bot.environments.command_line import parse
from bot.environments.requests import EnvironmentRequest, Verb
from tests.bot.environments.world import ENVIRONMENTS
from tests.bot.factories import OWNER

REQUEST = EnvironmentRequest(verb=Verb.LIST, user=OWNER)


PROFILES = (Profile(name="1xa100", gpus=1), Profile(name="cpu", gpus=0))


def parsed(text):
    return parse(text, REQUEST, ENVIRONMENTS, PROFILES)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("start", {"verb": Verb.START}),
        ("start lab", {"verb": Verb.START, "name": "lab"}),
        ("START gpus=1 lab image=code", {"verb": Verb.START, "name": "lab", "gpus": 1, "image": "code"}),
        ("start lab home=50Gi size=m", {"verb": Verb.START, "name": "lab", "home": "50Gi", "size": "m"}),
        ("start profile=1xa100", {"verb": Verb.START, "profile": "1xa100"}),
        ("start profile=cpu gpus=0", {"verb": Verb.START, "profile": "cpu", "gpus": 0}),
        ("list", {"verb": Verb.LIST}),
        ("list team", {"verb": Verb.LIST, "which": "team"}),
        ("open", {"verb": Verb.OPEN}),
        ("stop `lab`", {"verb": Verb.STOP, "name": "lab"}),
        ("keep", {"verb": Verb.KEEP, "hours": 24}),
        ("keep lab 2d", {"verb": Verb.KEEP, "name": "lab", "hours": 48}),
        ("keep 8h", {"verb": Verb.KEEP, "hours": 8}),
        ("delete lab", {"verb": Verb.DELETE, "name": "lab"}),
        ("delete home", {"verb": Verb.DELETE, "name": "home"}),
        ("delete home lab", {"verb": Verb.DELETE_HOME, "name": "lab"}),
    ],
)
def test_command_is_parsed(text, expected):
    assert parsed(text) == replace(REQUEST, **expected)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("strat lab", 'Unknown command "strat". Did you mean start?'),
        ("status", 'Unknown command "status". Did you mean list?'),
        (
            "start Lab",
            "The name must have at most 30 lowercase letters, digits, and dashes, and start with a",
        ),
        ("start ../../etc", "The name must have at most 30 lowercase letters"),
        (f"start {'a' * 31}", "The name must have at most 30 lowercase letters"),
        ("start lab other", 'Name one environment; got "lab" and "other".'),
        ("start gpus=1 gpus=2", 'gpus= is set twice: "1" and "2".'),
        ("start gpus=-1", 'gpus= must be a whole number; got "-1".'),
        ("start gpus=١", "gpus= must be a whole number"),
        ("start image=evil/miner:1", 'image= must be a configured image; got "evil/miner:1".'),
        ("start size=xxl", 'size= must be a configured size; got "xxl". Available: m.'),
        ("start home=5PB", 'home= must be a size such as 20Gi, or the name of a home; got "5PB".'),
        ("start home=2Ti", "home= can be at most 100Gi; got 2Ti."),
        ("start profile=a100", 'profile= must be a configured profile; got "a100". Did you mean 1xa100?'),
        ("start profile=1xa100 gpus=0", "gpus= must be at least 1 with profile=1xa100, which has GPUs."),
        ("start profile=cpu gpus=1", "gpus= must be 0 with profile=cpu, which has no GPUs."),
        ("start color=red", "Unknown option color=."),
        ("keep lab 8d", 'The time must be from 1h to 7d; got "8d".'),
        ("keep lab 0h", 'The time must be from 1h to 7d; got "0h".'),
        ("list everything", '/env list takes team or idle; got "everything".'),
        ("stop one two", 'Name one environment; got "one two".'),
        ("x" * 2000, "The command is too long (2,000 characters; the limit is 1,000)."),
    ],
)
def test_bad_command_is_refused_with_the_reason(text, error):
    with pytest.raises(UserError) as refused:
        parsed(text)
    assert str(refused.value).startswith(error)
