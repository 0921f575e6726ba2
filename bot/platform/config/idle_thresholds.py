"""The thresholds of warnings: `warnings:` of the configuration and `watch:` of a space file."""

from dataclasses import dataclass
from typing import Annotated, Any

from bot.platform.config.rules import Key, Rule, Schema
from bot.platform.config.section import Section, json_schema, read_each
from bot.platform.config.value_types import Number
from bot.platform.config.yaml_reader import Node

MIN_THRESHOLD = 0.1
MINUTES_PER_DAY = 24 * 60


@dataclass(frozen=True)
class _OrOff(Rule):
    """0, or a number from MIN_THRESHOLD."""

    most: int = MINUTES_PER_DAY

    def check(self, value: Any) -> Any:
        if value and not MIN_THRESHOLD <= value <= self.most:
            raise ValueError(f"must be 0 (off), or from {MIN_THRESHOLD} to {self.most}; got {value:g}")
        return value

    def described(self, schema: Schema) -> Schema:
        return {"anyOf": [{"const": 0}, schema | {"minimum": MIN_THRESHOLD, "maximum": self.most}]}


@dataclass(frozen=True, kw_only=True)
class IdleThresholds(Section):
    """When to warn about GPUs, and about CPUs and memory of trials without GPUs. 0 disables a warning."""

    # Samples are kept for two hours, so longer windows would miss some.
    idle_minutes: Annotated[Number, _OrOff(most=120), Key("60")] = 30
    """Minutes without GPU activity, or with less than 1% of the requested CPUs, before a warning. It repeats
    after two and four times as long."""
    first_use_minutes: Annotated[Number, _OrOff(), Key("45")] = 30
    """Minutes after the start by which the GPUs must have been used at least once."""
    low_percent: Annotated[Number, _OrOff(most=100), Key("5")] = 15
    """Mean utilization over two hours, in percent, below which a warning is sent. Without GPUs, it is the
    share of the requested CPUs, and the peak's share of the requested memory."""
    memory_percent: Annotated[Number, _OrOff(most=100), Key("95")] = 90
    """Share of the memory limit, in percent, from which a trial without GPUs causes a warning."""
    stuck_minutes: Annotated[Number, _OrOff(), Key("0")] = 30
    """Minutes of full utilization without a new log line before a warning."""
    stop_minutes: Annotated[Number, _OrOff(), Key("60", "0: never")] = 0
    """Minutes after the warning that all GPUs of a trial are idle or were never used. If they still are,
    and the warning isn't snoozed, Sweepbot stops the trial. Trials without GPUs are never stopped."""


def read_watch(node: Node) -> dict[str, float]:
    """Return the thresholds that a space file sets; they override the configuration's."""
    found, keys = read_each(IdleThresholds, node)
    return {key: getattr(found, key) for key in keys}


def watch_schema() -> Schema:
    """Return the schema of a space file's thresholds."""
    schema = json_schema(IdleThresholds)
    for key, each in schema["properties"].items():
        each["x-default"] = f"`warnings.{key}` of the configuration"
    return schema
