"""`digests:` in the configuration."""

import pytest

from bot.core.errors import UserError
from bot.platform.config.digest_times import DigestSchedule
from bot.platform.config.policy import Config, parse_config
from tests.cases import cases

KNOWN = "repositories: {digits: {url: https://git.example/digits.git}}\nteams: {vision: {}}\ndigests:\n"


def read(text: str) -> Config:
    return parse_config(KNOWN + text, "config.yaml")


def test_read_digests_needs_only_a_channel() -> None:
    config = read(
        "- {channel: C01ABC}\n- {channel: G02DEF, hour: 0, timezone: America/New_York, team: vision}\n"
    )
    assert config.digests == (
        DigestSchedule(channel="C01ABC", hour=9, timezone="UTC"),
        DigestSchedule(channel="G02DEF", hour=0, timezone="America/New_York", team="vision"),
    )
    assert config.currency == "$"


@cases(
    ("line", "expected"),
    [
        ("{hour: 9}", "config.yaml:4: digests[0]: missing key: channel"),
        (
            "{channel: sweeps}",
            "config.yaml:4: digests[0].channel: must be a Slack channel ID such as C012ABC",
        ),
        ("{channel: C01, hour: 24}", "config.yaml:4: digests[0].hour: must be from 0 to 23"),
        ("{channel: C01, hour: nine}", 'config.yaml:4: digests[0].hour: must be a number; got "nine"'),
        (
            "{channel: C01, timezone: Berlin}",
            'config.yaml:4: digests[0].timezone: must be a time zone such as Europe/Berlin; got "Berlin"',
        ),
        ("{channel: C01, timezone: ../UTC}", "config.yaml:4: digests[0].timezone:"),
        (
            "{channel: C01, team: vison}",
            'config.yaml:4: digests[0].team: must be a name under `teams`; got "vison". Did you mean vision?',
        ),
        ("{channel: C01, at: 9}", "config.yaml:4: digests[0].at: unknown key."),
        (
            "{channel: C01}\n- {channel: C01}",
            "config.yaml:5: digests[1]: duplicate channel C01; one digest per channel",
        ),
    ],
)
def test_read_digests_invalid_value_names_its_line(line: str, expected: str) -> None:
    with pytest.raises(UserError) as error:
        read(f"- {line}\n")
    assert str(error.value).startswith(expected)
