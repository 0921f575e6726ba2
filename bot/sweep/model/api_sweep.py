"""A sweep as the HTTP API and webhooks show it, with secrets masked. Pure."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, WithJsonSchema
from pydantic_core import CoreSchema

from bot.core.record import APPROVAL, Phase, SweepRecord
from bot.platform.config.docstrings import docstrings
from bot.platform.slack.mrkdwn import unmentioned
from bot.text.masking import Mask

COMMANDS_SHOWN = 12  # of a sweep, the latest

State = Annotated[
    str, WithJsonSchema({"type": "string", "enum": [each.name.lower() for each in Phase], "title": "State"})
]


class AnswerModel(BaseModel):
    """Its schema describes the fields with their docstrings."""

    model_config = ConfigDict(frozen=True)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        found = handler(schema)
        properties, meanings = handler.resolve_ref_schema(found)["properties"], docstrings(cls)
        for name in properties.keys() & meanings.keys():
            properties[name]["description"] = meanings[name]
        return found


class TrialCounts(AnswerModel):
    total: int
    done: int
    failed: int
    running: int


class Best(AnswerModel):
    value: float | None
    parameters: dict[str, str]


class GivenCommand(AnswerModel):
    at: datetime
    user: str
    command: str
    about: str | None
    denied: str | None
    """Why it was; null if it was applied."""


class Objective(AnswerModel):
    metric: str
    goal: str


class Sweep(AnswerModel):
    id: str
    state: State
    owner: str
    branch: str
    commit: str | None
    space: str
    objective: Objective | None
    reason: str | None
    cause: str | None
    """Of a failure: the line of a log that says why."""
    trials: TrialCounts
    best: Best | None
    thread: str | None
    """The URL of its thread in Slack."""
    results_url: str | None
    started: datetime
    ended: datetime | None
    commands: list[GivenCommand]
    """The latest ones."""


def awaits_approval(sweep: SweepRecord) -> bool:
    """Return whether it exceeds a budget, so that someone must approve it."""
    return sweep.phase is Phase.OPENING and APPROVAL in sweep.holds and bool(sweep.reason)


def named(text: str, sweep: SweepRecord) -> str:
    """Return the text with the names of its owner, and of who gave it commands, as Slack shows mentions."""
    people = [(each.user, each.name) for each in sweep.audit_log]
    people.append((sweep.requester.user, sweep.requester.user_name))
    return unmentioned(text, {user: name for user, name in people if name})


def shown(sweep: SweepRecord, mask: Mask) -> Sweep:
    """Return what the API shows of one sweep; None where unknown. Pure."""
    progress, plan, requester = sweep.progress, sweep.plan, sweep.requester
    best, waits = progress.best, "Waiting for approval: " if awaits_approval(sweep) else ""
    found = Sweep(
        id=sweep.id,
        state=sweep.phase.name.lower(),
        owner=requester.user_name or requester.user,
        branch=sweep.request.branch,
        commit=plan.pinned if plan else sweep.request.commit,
        space=sweep.request.space,
        objective=Objective(metric=plan.space.metric, goal=plan.space.goal) if plan else None,
        reason=waits + sweep.reason or sweep.failure or None,
        cause=sweep.cause or None,
        trials=TrialCounts(
            total=plan.space.max_trials if plan and sweep.submitted else 0,
            done=progress.finished,
            failed=progress.failed,
            running=progress.running,
        ),
        best=Best(value=best.value, parameters=best.parameters) if best else None,
        thread=sweep.permalink or None,
        results_url=sweep.results_url,
        started=sweep.created,
        ended=sweep.since if sweep.phase.final else None,
        commands=[
            GivenCommand(
                at=each.at,
                user=each.name or each.user,
                command=each.action.name.lower(),
                about=each.about or None,
                denied=named(each.refused, sweep) or None,
            )
            for each in sweep.audit_log[-COMMANDS_SHOWN:]
        ],
    )
    return Sweep.model_validate(_masked(found.model_dump(), mask))


def _masked(value: Any, mask: Mask) -> Any:
    if isinstance(value, dict):
        return {key: _masked(each, mask) for key, each in value.items()}
    if isinstance(value, list):
        return [_masked(each, mask) for each in value]
    return mask(value) if isinstance(value, str) else value
