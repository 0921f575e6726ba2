"""What can be typed after `/env`; what help and documents say of it."""

from dataclasses import replace

import pytest

from bot.platform.config.environments import ServiceConfig
from bot.platform.config.profiles import Profile
from bot.workspaces.environments.command_line import HELP, TABLE, parse_service
from bot.workspaces.environments.command_line import parse as parse_environment
from bot.workspaces.environments.requests import EnvironmentRequest, Verb
from tests.bot.factories import OWNER
from tests.bot.test_typed_commands import GPUS_1, OTTER, assert_documented, error_of
from tests.bot.workspaces.environments.world import ENVIRONMENTS
from tests.bot.workspaces.services.test_snippet import LEAST, LLM
from tests.cases import cases

REQUEST = EnvironmentRequest(verb=Verb.LIST, user=OWNER)
CLAIMS = Profile(name="claims", gpus=1, device_class="gpu.nvidia.com")
PROFILES = (Profile(name="1xa100", gpus=1), Profile(name="cpu", gpus=0), CLAIMS)
SERVICES = ServiceConfig(images=("ghcr.io/lab/",), volumes=("models",))


def environment(text):
    return parse_environment(text, REQUEST, ENVIRONMENTS, PROFILES)


def service(text):
    return parse_service(f"service {text}", REQUEST, SERVICES)


@pytest.mark.parametrize("gpus", GPUS_1)
def test_option_is_read_alike(gpus):
    assert environment(f"start lab {gpus}").gpus == 1


@pytest.mark.parametrize("name", OTTER)
def test_name_is_read_alike(name):
    assert environment(f"stop {name.lower()}").name == "otter"
    assert service(f"delete {name.lower()}").name == "otter"


@cases(
    ("text", "expected"),
    [
        ("start", {"verb": Verb.START}),
        ("start lab", {"verb": Verb.START, "name": "lab"}),
        ("start name=lab image=", {"verb": Verb.START, "name": "lab"}),
        ("START gpus=1 lab image=code", {"verb": Verb.START, "name": "lab", "gpus": 1, "image": "code"}),
        ("start lab home=50Gi size=m", {"verb": Verb.START, "name": "lab", "home": "50Gi", "size": "m"}),
        ("start profile=1xa100", {"verb": Verb.START, "profile": "1xa100"}),
        ("start profile=cpu gpus=0", {"verb": Verb.START, "profile": "cpu", "gpus": 0}),
        ("list", {"verb": Verb.LIST}),
        ("list Team", {"verb": Verb.LIST, "which": "team"}),
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
def test_env_command_is_parsed(text, expected):
    assert environment(text) == replace(REQUEST, **expected)


@cases(
    ("text", "error"),
    [
        ("strat lab", "Unknown command `strat`. Did you mean start?"),
        ("status", "Unknown command `status`. Did you mean list?"),
        (
            "start Lab",
            "The name must have at most 30 lowercase letters, digits, and dashes, and start with a",
        ),
        ("start ../../etc", "The name must have at most 30 lowercase letters"),
        (f"start {'a' * 31}", "The name must have at most 30 lowercase letters"),
        (
            "start lab other",
            "Unknown argument: `other`. Usage: `/env start [NAME] [image=] [gpus=] [profile=] ",
        ),
        ("start gpus=1 gpus=2", "`gpus=` is set twice."),
        ("start gpus=-1", 'gpus= must be a whole number from 0 to 999; got "-1".'),
        ("start gpus=١", "gpus= must be a whole number"),
        ("start image=evil/miner:1", 'image= must be a configured image; got "evil/miner:1".'),
        ("start size=xxl", 'size= must be a configured size; got "xxl". Available: m.'),
        ("start home=5PB", 'home= must be a size such as 20Gi, or the name of a home; got "5PB".'),
        ("start home=2Ti", "home= can be at most 100Gi; got 2Ti."),
        ("start profile=a100", 'profile= must be a configured profile; got "a100". Did you mean 1xa100?'),
        ("start profile=1xa100 gpus=0", "gpus= must be at least 1 with profile=1xa100, which has GPUs."),
        ("start profile=cpu gpus=1", "gpus= must be 0 with profile=cpu, which has no GPUs."),
        (
            "start profile=claims",
            "profile=claims claims GPUs by a DeviceClass, which only trials can. Use another profile=.",
        ),
        (
            "start color=red",
            "Unknown option: `color=`. Available: name, image, gpus, profile, size, and home.",
        ),
        ("keep lab 8d", 'HOURS must be a time from 1h to 7d; got "8d".'),
        ("keep lab 0h", 'HOURS must be a time from 1h to 7d; got "0h".'),
        ("list everything", 'WHICH must be team or idle; got "everything". Usage: `/env list [team|idle]`'),
        ("stop one two", "Unknown argument: `two`. Usage: `/env stop [NAME]`"),
        (f"start {'x ' * 4_010}", "The command can have at most 8,000 characters; got 8,0"),
    ],
)
def test_env_command_with_a_mistake_names_it(text, error):
    assert error_of(environment, text).startswith(error)


@pytest.mark.parametrize("text", [f"```{LEAST}```", f"```\n{LEAST}```", f"```yaml\n{LEAST}```", LEAST])
def test_service_snippet_is_read_with_or_without_a_fence(text):
    assert service(f"start {text}") == replace(REQUEST, verb=Verb.START, name="llm", service=LLM)


def test_service_snippet_is_read_without_slacks_escapes():
    request = service(f"start {LEAST}command: sh -c 'a &amp;&amp; b &gt; <http://x.example|x.example>'")
    assert request.service.command == ("sh", "-c", "a && b > x.example")


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("", None),
        ("start", None),
        ("list team", replace(REQUEST, services=True, which="team")),
        ("Delete llm", replace(REQUEST, verb=Verb.DELETE, services=True, name="llm")),
    ],
)
def test_service_command_is_parsed(text, command):
    assert service(text) == command


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("strat", "Unknown command `service strat`. Did you mean start?"),
        ("list idle", 'WHICH must be team; got "idle".'),
        ("delete", "Missing NAME. Usage: `/env service delete NAME`"),
        ("delete A B", "The name must have at most 30"),
        ("start " + "x" * 20_000, "The YAML is too long"),
        (f"start {LEAST.replace('lab', 'other')}", 'must be, or start with, "ghcr.io/lab/"'),
        (f"start {LEAST}volumes: {{model: /m}}", "Did you mean models?"),
    ],
)
def test_service_command_with_a_mistake_names_it(text, error):
    assert error in error_of(service, text)


def test_help_and_documents_name_each_command():
    assert_documented(TABLE, HELP, "environments")
    assert "• `/env list [team|idle]`: your environments" in HELP
