"""A sweep above a budget of a month waits before its build: who decides, when it starts, when it ends."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.budget import Budget, Forecast, amount_of
from bot.core.commands import API, Action, Command
from bot.core.record import APPROVAL, Phase
from bot.core.sweep_summary import summary_of
from bot.platform.config.limits import Budgets
from bot.platform.config.teams import Team
from bot.sweep.answers.messages import listing
from bot.sweep.decisions.advance import advance, requeue_after
from bot.sweep.decisions.parent_message import Links, parent
from bot.sweep.features.approval.decide import ApprovalState, SpendingSeen, message
from bot.sweep.launch.spending import Allowance, Limit
from bot.sweep.model.observation import Observation
from tests.bot.factories import ADMIN, CONFIG, NOW, OWNER, PLAN, STRANGER, a_sweep
from tests.bot.sweep.model.observations import DONE, kinds

DAY, LEAD, SECOND = timedelta(days=1), "ULEAD", "USECOND"
BUDGETED = replace(
    CONFIG,
    budgets=Budgets(person="40", approvers=(SECOND,)),
    teams=(Team(name="vision", members=(OWNER,), approvers=(LEAD, OWNER)),),
)
APPROVERS = (LEAD, SECOND)


def a_limit(text="40", *, account="", whose="ada"):
    return Limit(whose=whose, amount=amount_of(text), owners=frozenset({OWNER}), account=account)


def spending(used=30.0, *, expected=0.0, limit=None, days=3):
    found = Allowance(limit=limit or a_limit(), used=used, expected=expected)
    return SpendingSeen(allowances=(found,), approvers=APPROVERS, days=days)


def an_opening(gpu_hours=20.0, price=0.0, **changes):
    each = None if gpu_hours is None else gpu_hours / PLAN.space.max_trials
    plan = replace(PLAN, trial_forecast=Forecast(gpu_hours=each, price=price))
    return a_sweep(Phase.OPENING, **{"plan": plan, "thread": "1.1", "holds": (APPROVAL,)} | changes)


def after(sweep, own=None, *commands, now=NOW):
    seen = Observation(commands=commands)
    return advance(sweep, seen.put(own) if own else seen, BUDGETED, now)


def decided(sweep, action, user, *, now=NOW, own=None, **fields):
    command = Command(action=action, user=user, user_name=user.lower(), **fields)
    return after(sweep, own or spending(), command, now=now)


WAITING = after(an_opening(), spending())


def body(sweep):
    return parent(sweep, Links()).blocks[0]["text"]["text"]


def test_sweep_that_fits_or_needs_no_forecast_starts_without_a_word():
    sweep = after(an_opening(10), spending())
    assert (sweep.phase, sweep.holds, sweep.outbox) == (Phase.BUILDING, (), ())
    assert after(an_opening(0.0), spending(40, limit=a_limit("$40"))).phase is Phase.BUILDING


def test_sweep_that_does_not_fit_waits_and_mentions_the_approvers():
    assert (WAITING.phase, WAITING.holds) == (Phase.OPENING, (APPROVAL,))
    [request] = WAITING.outbox
    assert request.text == (
        ":hourglass_flowing_sand: *lr-brave-otter* · "
        f"Waiting for approval by <@{LEAD}> or <@{SECOND}>: the forecast is 20 "
        "GPU-h, and ada has used 30 of 40 GPU-h this month."
    )
    assert request.loud
    assert message(an_opening()) is None
    assert message(WAITING).blocks == ()
    shown = message(WAITING.change(ApprovalState, ts="1.2"))
    names = [each["text"]["text"] for each in shown.blocks[-1]["elements"]]
    assert names == ["Approve", "Decline"]
    assert body(WAITING) == (
        ":hourglass_flowing_sand: *lr-brave-otter* · Waiting for approval: the forecast is 20 GPU-h, and "
        f"ada has used 30 of 40 GPU-h this month\n<@{LEAD}> or <@{SECOND}> can approve it. Nothing is "
        "built until then."
    )
    names = [each["text"]["text"] for each in parent(WAITING, Links()).blocks[-1]["elements"]]
    assert names == ["Approve", "Decline", "Logs", "Cancel sweep"]


def test_sweep_is_held_from_its_plan_on_and_its_thread_opens_before_the_message():
    unlimited, limited = (
        advance(a_sweep(), Observation(plan=replace(PLAN, trial_forecast=forecast)), BUDGETED, NOW)
        for forecast in (None, Forecast(gpu_hours=5))
    )
    assert (APPROVAL in unlimited.holds, APPROVAL in limited.holds) == (False, True)
    unopened = after(an_opening(thread=None), spending())
    assert (unopened.thread, kinds(unopened), unopened.of(ApprovalState).since) == (None, [], NOW)
    opened = after(replace(unopened, thread="1.1"))  # as it is advanced where the thread was opened
    assert (opened.phase, opened.holds) == (Phase.OPENING, (APPROVAL,))
    assert kinds(after(opened, spending())) == ["approval"]


@pytest.mark.parametrize(
    ("forecast", "own", "why"),
    [
        (
            (None, 0.0),
            spending(),
            "the forecast is unknown, and ada has used 30 of 40 GPU-h this month",
        ),
        (
            (10.0, 2.0),
            spending(80, expected=5, limit=a_limit("$100")),
            "the forecast is $20.00, and ada has used $85.00 of $100 this month, $5.00 of it",
        ),
        ((10.0, 0.0), spending(1, limit=a_limit("$100")), "the forecast is unknown, and ada has used $1.00"),
        (
            (50.0, 0.0),
            SpendingSeen(allowances=(Allowance(limit=Limit(whose="", amount=amount_of("40"))),), days=1),
            "the forecast is 50 GPU-h, and one sweep can use 40 GPU-h",
        ),
    ],
)
def test_reason_says_what_is_forecast_and_what_is_left(forecast, own, why):
    assert after(an_opening(*forecast), own).reason.startswith(why)


@pytest.mark.parametrize("user", [LEAD, SECOND, ADMIN])
def test_approver_lets_it_start(user):
    sweep = decided(WAITING, Action.APPROVE, user)
    assert (sweep.phase, sweep.holds, sweep.reason) == (Phase.BUILDING, (), "")
    assert sweep.outbox[-1].text == (f":white_check_mark: <@{user}> approved this sweep. Its build starts.")
    assert sweep.audit_log[-1].action is Action.APPROVE
    assert after(sweep, now=NOW + 9 * DAY).phase is Phase.BUILDING


@pytest.mark.parametrize(
    ("user", "why"),
    [
        (OWNER, f"You can't approve your own sweep. Ask <@{LEAD}> or <@{SECOND}>."),
        (STRANGER, f"You can't approve this sweep. Ask <@{LEAD}> or <@{SECOND}>."),
    ],
)
@pytest.mark.parametrize("action", [Action.APPROVE, Action.DECLINE])
def test_others_are_told_whom_to_ask(user, why, action):
    sweep = decided(WAITING.change(ApprovalState, earlier="1.2"), action, user)
    assert (sweep.phase, sweep.outbox[-1].text, sweep.outbox[-1].to_user) == (Phase.OPENING, why, user)
    assert sweep.of(ApprovalState).earlier == "1.2", "its buttons are still to be removed"


def test_token_can_not_approve_for_its_owner_who_can_when_only_its_budget_is_exceeded():
    own = spending(limit=a_limit(account="a1", whose="the token"))
    sweep = after(an_opening(), own)
    assert sweep.outbox[-1].text.startswith(
        ":hourglass_flowing_sand: *lr-brave-otter* · "
        f"Waiting for approval by <@{OWNER}>: the forecast is 20 GPU-h, and"
    )
    by_token = decided(sweep, Action.APPROVE, OWNER, own=own, via=API)
    assert (by_token.phase, by_token.outbox[-1].text) == (
        Phase.OPENING,
        "A person must decide about `lr-brave-otter` in Slack: its message has the buttons.",
    )
    assert decided(sweep, Action.APPROVE, OWNER, own=own).phase is Phase.BUILDING
    both = SpendingSeen(allowances=(*own.allowances, *spending().allowances), approvers=APPROVERS, days=3)
    assert after(an_opening(), both).of(ApprovalState).approvers == APPROVERS


@pytest.mark.parametrize(
    ("reason", "why"), [("", "Declined by ulead"), ("too much", "Declined by ulead: too much")]
)
def test_declined_sweep_ends_with_the_reason(reason, why):
    sweep = decided(WAITING, Action.DECLINE, LEAD, reason=reason)
    assert (sweep.phase, sweep.reason, sweep.holds) == (Phase.FAILED, why, ())  # nothing was created
    assert sweep.outbox[-1].text.startswith(f":x: <@{OWNER}> *lr-brave-otter* · {why}")


def test_admin_who_declines_their_own_sweep_is_not_mentioned_about_it():
    own = replace(WAITING, requester=replace(WAITING.requester, user=ADMIN))
    sweep = decided(own, Action.DECLINE, ADMIN)
    assert sweep.outbox[-1].text.startswith(":x: *lr-brave-otter* · Declined by ")
    assert not sweep.outbox[-1].loud


def test_owner_can_cancel_it():
    sweep = decided(WAITING, Action.CANCEL, OWNER)
    assert (sweep.phase, sweep.ending) == (Phase.STOPPING, Phase.CANCELLED)
    assert body(sweep) == ":octagonal_sign: *lr-brave-otter* · Stopping: cancelled by *ada*"
    assert listing([summary_of(sweep)]).startswith(":octagonal_sign: *lr-brave-otter* · Stopping · ")
    late = decided(sweep, Action.APPROVE, LEAD)
    assert late.phase is Phase.CANCELLED
    assert f"<@{OWNER}> already cancelled" in late.outbox[-2].text
    assert body(late) == ":no_entry_sign: *lr-brave-otter* · Cancelled by *ada*"
    names = [each["text"]["text"] for each in parent(late, Links()).blocks[-1]["elements"]]
    assert names == ["Logs", "Rerun"]


def test_approvers_are_reminded_each_day_until_it_expires():
    sweep, texts = WAITING, []
    for hour in range(0, 72, 6):
        sweep = after(sweep, spending(), now=NOW + timedelta(hours=hour))
        assert requeue_after(sweep, sweep, NOW) == timedelta(minutes=5)
    texts = [each.text.partition(" by ")[0] for each in sweep.outbox]
    assert texts == [
        ":hourglass_flowing_sand: *lr-brave-otter* · Waiting for approval",
        *[":hourglass_flowing_sand: *lr-brave-otter* · Still waiting for approval"] * 2,
    ]
    expired = after(sweep, spending(), now=NOW + 3 * DAY)
    assert (expired.phase, expired.ending, expired.reason) == (
        Phase.STOPPING,
        Phase.FAILED,
        "Not approved within 3 days",
    )


@pytest.mark.parametrize("own", [spending(0), SpendingSeen(days=3)])
def test_waiting_sweep_starts_once_it_fits_or_no_limit_is_left(own):
    sweep = after(WAITING, own, now=NOW + DAY)
    assert (sweep.phase, sweep.holds, sweep.reason) == (Phase.BUILDING, (), "")
    assert sweep.outbox[-1].text.endswith("this sweep fits its budgets now.")


@pytest.mark.parametrize("action", [Action.APPROVE, Action.DECLINE])
def test_sweep_that_does_not_wait_can_not_be_decided(action):
    sweep = decided(a_sweep(Phase.RUNNING, submitted=True), action, ADMIN)
    assert sweep.outbox[-1].text == "`lr-brave-otter` doesn't wait for approval."


@pytest.mark.features("budget")
def test_budget_of_a_running_sweep_can_be_raised_to_what_is_left_and_by_admins_above_it():
    plan = replace(PLAN, trial_forecast=Forecast(gpu_hours=5), budget=Budget(gpu_hours=2))
    sweep = a_sweep(Phase.RUNNING, submitted=True, plan=plan)
    denied = decided(sweep, Action.BUDGET, OWNER, budget="11")
    assert denied.plan == plan
    assert denied.outbox[-1].text == (
        "That exceeds a budget: the forecast is 11 GPU-h, and ada has used 30 of 40 GPU-h this month. *Fix:* "
        "Ask an admin to do it, or start another sweep, which can be approved."
    )
    for user, budget in ((OWNER, "10"), (ADMIN, "11")):
        assert decided(sweep, Action.BUDGET, user, budget=budget).plan.budget == Budget(gpu_hours=int(budget))


@pytest.mark.features("extension")
def test_sweep_can_be_extended_only_to_what_is_left_of_a_known_forecast():
    plan = replace(PLAN, trial_forecast=Forecast(gpu_hours=1))
    sweep = a_sweep(Phase.SUCCEEDED, submitted=True, plan=plan)
    assert "the forecast is 11 GPU-h" in extended(sweep, 11).outbox[-1].text
    assert extended(sweep, 10).plan.space.max_trials == 10
    plan = replace(PLAN, trial_forecast=Forecast(gpu_hours=None))
    sweep = a_sweep(Phase.SUCCEEDED, submitted=True, plan=plan)
    assert "the forecast is unknown" in extended(sweep, 11).outbox[-1].text
    assert "the forecast is unknown" in extended(sweep, 11, user=ADMIN, via=API).outbox[-1].text
    assert extended(sweep, 11, user=ADMIN).plan.space.max_trials == 11
    running = replace(sweep, phase=Phase.RUNNING)
    assert decided(running, Action.DRAIN, OWNER).draining, "it uses no more"


@pytest.mark.features("pause")
def test_waiting_sweep_has_no_trials_to_pause():
    assert decided(WAITING, Action.PAUSE, OWNER).outbox[-1].text == "`lr-brave-otter` has no trials to pause."


def extended(sweep, trials, *, user=OWNER, via=""):
    command = Command(action=Action.EXTEND, user=user, user_name="ada", trials=trials, via=via)
    return advance(sweep, Observation(commands=(command,), experiment=DONE).put(spending()), BUDGETED, NOW)
