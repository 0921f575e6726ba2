"""Hold a sweep that exceeds a budget, until it is approved, declined, fits, or has waited too long: its
messages, reminders, buttons; refuse to extend one above a budget. Pure.

    opening, held -> opening -> building
                 `-> stopping (declined, or expired)

Each decision that lets a sweep start is saved with a check (bot.platform.storage.sweeps), so that two sweeps
can't both get what is left.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar

from bot.core.commands import Command
from bot.core.events import Event
from bot.core.feature_state import FeatureState
from bot.core.record import APPROVAL, Phase, SweepRecord
from bot.core.request import is_team
from bot.platform.config import permissions
from bot.platform.config.policy import Config
from bot.platform.slack.blocks import actions, button, section
from bot.platform.slack.message import Message
from bot.platform.slack.mrkdwn import local_time, mention, quoted
from bot.sweep.launch.spending import Allowance
from bot.sweep.model.observation import Observation
from bot.sweep.model.texts import confirmation, display_name, name_link
from bot.text.wording import counted, listed

REMINDER = timedelta(days=1)  # after which the approvers are mentioned again
REQUEST = "approval"  # kind of event
# The buttons' action_ids
APPROVE, DECLINE = "approve_sweep", "decline_sweep"


@dataclass(frozen=True, kw_only=True)
class ApprovalState(FeatureState):
    name: ClassVar[str] = "approval"

    since: datetime | None = None  # when it was known that the sweep exceeds a budget; None: not waiting
    by_owner: bool = False  # only the budget of its token is exceeded
    approvers: tuple[str, ...] = ()  # Slack user ids
    mentioned: int = 0  # how often they were
    decision: str = ""  # until when and why it waited, as a sentence; "": it still does, or never did
    ts: str | None = None  # of the last message that asks them
    fingerprint: str = ""  # of that message in Slack
    earlier: str = ""  # ts of the one before, which still has buttons


@dataclass(frozen=True, kw_only=True)
class SpendingSeen:
    allowances: tuple[Allowance, ...] = ()
    approvers: tuple[str, ...] = ()
    days: int = 0  # for which a sweep waits at most; 0: nothing was observed


def planned(sweep: SweepRecord, _: Config) -> SweepRecord:
    has_limits = sweep.plan is not None and sweep.plan.forecast is not None
    return sweep.hold(APPROVAL) if has_limits else sweep


def follow(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Let the sweep start if it fits; otherwise mention the approvers, and again each day."""
    own, plan = seen.of(SpendingSeen), sweep.plan
    if APPROVAL not in sweep.holds or not own.days or plan is None or plan.forecast is None:
        return sweep
    exceeded = [each for each in own.allowances if each.refusal(plan.forecast)]
    state = sweep.of(ApprovalState)
    if not exceeded:
        text = ":hourglass_flowing_sand: No approval is needed any more: this sweep fits its budgets now."
        sweep = replace(_decided(sweep, ":white_check_mark:", now), reason="")
        return sweep.enqueue(Event(kind="approved", text=text)) if state.mentioned else sweep
    by_owner = all(each.limit.account for each in exceeded) and not is_team(sweep.requester.user)
    state = replace(
        state,
        since=state.since or now,
        by_owner=by_owner,
        approvers=(sweep.requester.user,) if by_owner else own.approvers,
    )
    waited = now - (state.since or now)
    if waited >= timedelta(days=own.days):
        why = f"Not approved within {counted(own.days, 'day')}"
        return _decided(sweep.put(state), ":x:", now).fail(why, now)
    sweep = sweep.put(state, reason=exceeded[0].refusal(plan.forecast))
    if sweep.thread is None or waited // REMINDER < state.mentioned:
        return sweep
    sweep = sweep.change(ApprovalState, mentioned=waited // REMINDER + 1, ts=None, earlier=state.ts or "")
    return sweep.enqueue(Event(kind=REQUEST, text=_request(sweep), loud=True))


def _decided(sweep: SweepRecord, emoji: str, now: datetime) -> SweepRecord:
    """End the wait: the message that asked has no buttons any more, and the next one says who or what did."""
    text = f"{emoji} Waited for approval until {local_time(now)}: {quoted(sweep.reason)}."
    state = replace(sweep.of(ApprovalState), since=None, approvers=(), mentioned=0, decision=text)
    return sweep.put(state).unhold(APPROVAL)


def message(sweep: SweepRecord) -> Message | None:
    """Build the last message that asks the approvers, as it is now.

    Buttons are added by an edit: one that is posted again after a crash would keep them.
    """
    if _waits(sweep):
        text, is_posted = _request(sweep), bool(sweep.of(ApprovalState).ts)
        return Message(text=text, blocks=(section(text), actions(*buttons(sweep))) if is_posted else ())
    who = display_name(sweep, sweep.cancelled_by or "")
    cancelled = f":no_entry_sign: {who} cancelled this sweep before it was approved."
    text = sweep.of(ApprovalState).decision or (cancelled if sweep.cancelled_by else "")
    return Message(text=text) if text else None


def earlier_message(_: SweepRecord) -> Message | None:
    """Build the message that asked a day before: the newest one has the buttons."""
    return Message(text=":hourglass_flowing_sand: Asked again in a newer message.")


def earlier_edited(sweep: SweepRecord, _: str, fingerprint: str) -> SweepRecord:
    return sweep.change(ApprovalState, earlier="") if fingerprint else sweep


def _request(sweep: SweepRecord) -> str:
    state = sweep.of(ApprovalState)
    still = "Still waiting" if state.mentioned > 1 else "Waiting"
    text = f"{still} for approval by {_named(state.approvers)}: {quoted(sweep.reason)}."
    return f":hourglass_flowing_sand: {name_link(sweep)} · {text}"


def _named(users: tuple[str, ...]) -> str:
    return listed([mention(each) for each in users[: permissions.MAX_NAMED]], "or") or "an admin"


def approval_denial(
    sweep: SweepRecord, command: Command, _: Observation, config: Config, __: datetime
) -> str:
    """Return why the user can't approve or decline it; "" if they can."""
    state = sweep.of(ApprovalState)
    if state.since is None or APPROVAL not in sweep.holds:
        return f"`{sweep.id}` doesn't wait for approval."
    if command.via:  # a token acts as its owner, who can be the approver
        return permissions.BY_A_PERSON.format(sweep.id)
    return permissions.approval_denial(command.user, sweep, config, by_owner=state.by_owner)


def approved(sweep: SweepRecord, command: Command, _: Observation, __: Config, now: datetime) -> SweepRecord:
    text = f":white_check_mark: {display_name(sweep, command.user)} approved this sweep"
    sweep = replace(_decided(sweep, ":white_check_mark:", now), reason="")
    return sweep.enqueue(Event(kind="approved", text=f"{text}. Its build starts."))


def declined(sweep: SweepRecord, command: Command, _: Observation, __: Config, now: datetime) -> SweepRecord:
    why = f": {command.reason}" if command.reason else ""
    return _decided(sweep, ":x:", now).fail(f"Declined by {command.user_name or command.user}{why}", now)


def growth_denial(
    before: SweepRecord, after: SweepRecord, command: Command, seen: Observation, config: Config
) -> str:
    """Return why a running or ended sweep can't be changed so that it will use more; "" if it can."""
    is_admin = command.user in config.admins and not command.via  # a token acts as its owner
    forecast = after.plan.forecast if after.plan else None
    if forecast is None or is_admin or not _grows(before, after):
        return ""
    refusals = (each.refusal(forecast) for each in seen.of(SpendingSeen).allowances)
    why = next(filter(None, refusals), "")
    fix = "*Fix:* Ask an admin to do it, or start another sweep, which can be approved."
    return f"That exceeds a budget: {quoted(why)}. {fix}" if why else ""


def _grows(before: SweepRecord, after: SweepRecord) -> bool:
    """Return whether the sweep can use more than before; with an unknown forecast, by more trials."""
    if before.plan is None or after.plan is None or after.plan.forecast is None:
        return False
    is_unknown = after.plan.forecast.gpu_hours is None
    has_more = after.plan.space.max_trials > before.plan.space.max_trials
    return (is_unknown and has_more) or after.plan.forecast != before.plan.forecast


def _waits(sweep: SweepRecord) -> bool:
    """Return whether someone can decide: a sweep that was cancelled meanwhile keeps the hold."""
    return sweep.phase is Phase.OPENING and APPROVAL in sweep.holds and bool(sweep.of(ApprovalState).since)


def headline(sweep: SweepRecord) -> tuple[str, str] | None:
    return (":hourglass_flowing_sand:", "Waiting for approval") if _waits(sweep) else None


def problem(sweep: SweepRecord) -> list[str]:
    if not _waits(sweep):
        return []
    return [f"{_named(sweep.of(ApprovalState).approvers)} can approve it. Nothing is built until then."]


def buttons(sweep: SweepRecord) -> list[dict[str, Any]]:
    if not _waits(sweep):
        return []
    effect = f"Builds {sweep.id} and starts its trials, although it exceeds a budget."
    approve = confirmation("Approve this sweep?", effect, "Approve", "Keep waiting")
    return [
        button(APPROVE, "Approve", sweep.id, style="primary", confirm=approve),
        button(DECLINE, "Decline", sweep.id),
    ]
