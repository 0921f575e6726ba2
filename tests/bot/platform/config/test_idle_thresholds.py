"""Idle-GPU warning thresholds: of all sweeps in the configuration, of one sweep in its space file."""

import pytest

from bot.core.errors import UserError
from bot.core.request import SweepRequest
from bot.platform.config.idle_thresholds import IdleThresholds
from bot.platform.config.limits import Limits
from bot.platform.config.policy import parse_config
from bot.sweep.spaces.space import parse_space

HEAD = "repositories: {a: {url: https://x.org/a.git}}\n"
SPACE = """\
command: python train.py
objective: {metric: acc, goal: maximize}
parameters: {lr: [1, 2]}
"""


def space(text: str) -> dict[str, float]:
    request = SweepRequest(branch="main", space="lr")
    return parse_space(SPACE + text, "sweeps/lr.yaml", request, Limits()).watch


def test_warnings_apply_to_all_sweeps_and_watch_overrides_single_thresholds() -> None:
    assert parse_config(HEAD, "c.yaml").warnings == IdleThresholds(
        idle_minutes=30, first_use_minutes=30, low_percent=15
    )
    config = parse_config(
        HEAD + "warnings: {idle_minutes: 60, low_percent: 0}\nadmin_channel: C0A\n", "c.yaml"
    )
    assert config.warnings == IdleThresholds(idle_minutes=60, first_use_minutes=30, low_percent=0)
    assert config.admin_channel == "C0A"
    assert space("") == {}
    assert space("watch: {first_use_minutes: 45}\n") == {"first_use_minutes": 45}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("watch: {idle: 30}", "sweeps/lr.yaml:4: watch.idle: unknown key. Did you mean idle_minutes"),
        (
            "watch: {idle_minutes: -1}",
            "sweeps/lr.yaml:4: watch.idle_minutes: must be 0 (off), or from 0.1 to 120",
        ),
        ("watch: {low_percent: 101}", "watch.low_percent: must be 0 (off), or from 0.1 to 100"),
        ("watch: {idle_minutes: 0.01}", "must be 0 (off), or from 0.1 to 120"),
        ("watch: {first_use_minutes: 1441}", "must be 0 (off), or from 0.1 to 1440"),
        ("watch: {low_percent: few}", 'watch.low_percent: must be a number; got "few"'),
        (
            "watch: off",
            "watch: must be a mapping with idle_minutes, first_use_minutes, low_percent, memory_percent,",
        ),
    ],
)
def test_read_watch_invalid_value_names_its_line(text: str, expected: str) -> None:
    with pytest.raises(UserError) as error:
        space(text)
    assert expected in str(error.value)
