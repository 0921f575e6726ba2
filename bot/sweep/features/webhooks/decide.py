"""Decide which events of a sweep its webhooks get, and when: its start, its first trial healthy or failed,
and its end. Pure.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from bot.core.events import Event
from bot.core.feature_state import FeatureState
from bot.core.record import Phase, SweepRecord
from bot.platform.config.policy import Config
from bot.platform.config.webhooks import EventType
from bot.sweep.model.observation import Observation
from bot.sweep.model.texts import FIRST_HEALTHY
from k8s.objects import TEAM_LABEL


@dataclass(frozen=True, kw_only=True)
class WebhooksState(FeatureState):
    name: ClassVar[str] = "webhooks"

    hooks: tuple[str, ...] = ()  # those that get its events, by name: the ones configured when it was planned
    reported_in: int = 0  # the last attempt whose first trial was reported
    is_healthy: bool = False  # a first trial was reported as healthy


def planned(sweep: SweepRecord, config: Config) -> SweepRecord:
    labels = sweep.plan.experiment["metadata"]["labels"] if sweep.plan else {}
    channel, team = sweep.requester.channel, labels.get(TEAM_LABEL, "")
    hooks = tuple(each.name for each in config.webhooks if each.wants(channel, team))
    return sweep.change(WebhooksState, hooks=hooks)


def follow(sweep: SweepRecord, _: Observation, __: datetime) -> SweepRecord:
    """Report that its build starts; then its first trial, once in each attempt until one is healthy."""
    state = sweep.of(WebhooksState)
    if not state.hooks:
        return sweep
    if sweep.phase is Phase.OPENING:
        return _reported(sweep, EventType.STARTED) if sweep.thread and not sweep.holds else sweep
    if state.is_healthy or state.reported_in == sweep.attempt:
        return sweep
    progress = sweep.progress
    if progress.succeeded or progress.live or sweep.steps.get("first") == FIRST_HEALTHY:
        sweep = sweep.change(WebhooksState, is_healthy=True)
        return _reported(sweep, EventType.FIRST_TRIAL_HEALTHY)
    if not (sweep.cause or sweep.phase is Phase.HELD):
        return sweep
    sweep = sweep.change(WebhooksState, reported_in=sweep.attempt)
    return _reported(sweep, EventType.FIRST_TRIAL_FAILED)


def ended(sweep: SweepRecord, _: Observation, __: Config) -> SweepRecord:
    return _reported(sweep, EventType.ENDED) if sweep.of(WebhooksState).hooks else sweep


def _reported(sweep: SweepRecord, kind: EventType) -> SweepRecord:
    """The version tells two ends of an extended sweep apart: one decision is saved for each."""
    return sweep.enqueue(Event(kind=str(kind), text=str(sweep.version)))
