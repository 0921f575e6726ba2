"""The text after /env service."""

import pytest

from bot.config.services import ServiceConfig
from bot.core.errors import UserError
from bot.services.command_line import DELETE, START, ServiceCommand, after_service, parse_service
from tests.bot.services.test_snippet import LEAST, LLM

CONFIG = ServiceConfig(images=("ghcr.io/lab/",), volumes=("models",))


def parse(text):
    return parse_service(text, CONFIG)


@pytest.mark.parametrize("text", [f"```{LEAST}```", f"```\n{LEAST}```", f"```yaml\n{LEAST}```", LEAST])
def test_snippet_after_the_command_is_read_with_or_without_a_fence(text):
    assert parse(f"start {text}") == ServiceCommand(verb=START, name="llm", service=LLM)


def test_slacks_escapes_are_undone():
    request = parse(f"start {LEAST}command: sh -c 'a &amp;&amp; b &gt; <http://x.example|x.example>'")
    assert request.service.command == ("sh", "-c", "a && b > x.example")


def test_start_alone_and_no_word_open_the_form():
    assert parse("") is None
    assert parse("start") is None


def test_list_and_delete_are_about_services():
    assert parse("list team").which == "team"
    assert parse("delete llm") == ServiceCommand(verb=DELETE, name="llm")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("strat", 'Unknown command "service strat". Did you mean start?'),
        ("list idle", '/env service list takes team, or nothing; got "idle".'),
        ("delete", "Add the service's name"),
        ("delete A B", "The name must have at most 30"),
        ("start " + "x" * 20_000, "The YAML is too long"),
        (f"start {LEAST.replace('lab', 'other')}", 'must be, or start with, "ghcr.io/lab/"'),
        (f"start {LEAST}volumes: {{model: /m}}", "Did you mean models?"),
    ],
)
def test_wrong_command_is_refused(text, error):
    with pytest.raises(UserError) as caught:
        parse(text)
    assert error in str(caught.value)


@pytest.mark.parametrize(
    ("text", "rest"), [("service", ""), ("Service list", "list"), ("services", None), ("start x", None)]
)
def test_word_service_is_recognized(text, rest):
    assert after_service(text) == rest
