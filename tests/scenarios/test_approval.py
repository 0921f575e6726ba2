"""A sweep above a budget of a month: what counts, when it starts, and what a killed worker changes."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.budget import Forecast
from bot.core.commands import Action, Command
from bot.core.events import Event
from bot.core.record import Phase
from bot.core.request import Requester
from bot.core.work_item import WorkItem
from bot.platform.config.limits import Budgets
from bot.platform.config.personal import Personal
from bot.platform.config.teams import Price, Team
from bot.platform.storage.work_queue import Lease
from bot.sweep.answers.messages import listing
from bot.sweep.features.approval.decide import APPROVE, DECLINE, ApprovalState
from bot.sweep.launch.spending import allowances
from bot.sweep.results.models import SweepResults, TrialResult
from bot.sweep.sweeps.reconciler import reconcile
from k8s.katib.status import TrialState
from local.slack.workspace import GRACE
from tests.bot.factories import ADMIN, COMMIT, CONFIG, NOW, OWNER, PLAN, STRANGER, a_sweep
from tests.scenarios.moments import sample
from tests.scenarios.slack_session import CHANNEL, open_session
from tests.scenarios.slack_user import a_slack_user
from tests.scenarios.sweep_in_memory import SPACE, SWEEP, Clock, SimulatedSweep
from tests.scenarios.test_limits_at_once import GapStore

SECOND = "lr-calm-lynx"
HOUR = SPACE.replace("max_failed: 1", "max_failed: 1, trial_hours: 2")  # 3 trials: 6 GPU-hours
BUDGETED = replace(CONFIG, budgets=Budgets(person="10"))
REQUESTER = Requester(user=OWNER, user_name="ada", channel="C1")


def ended(sweep, gpu_hours, *, owner=OWNER, at=NOW, account=""):
    trial = TrialResult(name="t", state=TrialState.SUCCEEDED, parameters={}, gpu_hours=gpu_hours)
    return SweepResults(
        sweep=sweep,
        request_id=sweep,
        phase=Phase.SUCCEEDED,
        owner=owner,
        account=account,
        channel="C1",
        repo_url="https://git.example/other.git",
        branch="main",
        commit=COMMIT,
        space=PLAN.space,
        gpus=1,
        started=at,
        ended=at,
        trials=(trial,),
    )


class Approved(SimulatedSweep):
    """`used`: GPU-hours of the owner's ended sweep of this month; `answers`: the admin's, once it waits."""

    def __init__(self, redis, *, used=0.0, answers=None, crash_at=None, **more):
        super().__init__(redis, Clock(crash_at), image=True, space=HOUR, **more)
        self.used, self.answers = used, answers
        self.clients.config = replace(self.clients.config, budgets=BUDGETED.budgets)

    async def ends(self, rounds=60):
        async with self.started():
            if self.used:
                await replace(self.clients, cluster=self.cluster).kept_results.save(
                    ended("lr-old-owl", self.used)
                )
            for number in range(rounds):
                await self.round(worker=f"worker-{number}")
                waits = self.last.of(ApprovalState).mentioned and not self.last.outbox
                if waits and self.answers and not self.last.phase.final:
                    await self.answer(self.answers)
                if self.last.phase.final and not self.last.outbox:
                    await self.round(worker="last")  # after a death, the queue's item comes again
                    return self
        return self

    async def answer(self, action, user=ADMIN, sweep=SWEEP):
        await self.store.add_command(sweep, Command(action=action, user=user, user_name="boss"))

    def builds(self):
        return list(self.kubernetes.peek("Experiment"))


ASKS = f":hourglass_flowing_sand: *<https://lab.slack.com/C1/1.0|{SWEEP}>* · "


async def test_sweep_that_fits_starts_at_once(redis):
    sweep = await Approved(redis, used=4).ends()
    assert sweep.last.phase is Phase.SUCCEEDED
    assert not [text for text in sweep.slack.posted if "approv" in text]


async def test_sweep_that_does_not_fit_creates_nothing_until_it_is_approved(redis):
    """Also if Redis loses everything meanwhile."""
    sweep = Approved(redis, used=4.5)
    async with sweep.started():
        await replace(sweep.clients, cluster=sweep.cluster).kept_results.save(ended("lr-old-owl", 4.5))
        for _ in range(6):
            await sweep.round()
        assert (sweep.last.phase, sweep.builds()) == (Phase.OPENING, [])
        [text] = sweep.slack.posted
        assert text == (
            f"{ASKS}Waiting for approval by <@{ADMIN}>: the forecast is 6 GPU-h, and ada has "
            "used 4.5 of 10 GPU-h this month."
        )
        await redis.flushall()
        for _ in range(3):
            await sweep.round()
        assert (sweep.last.phase, sweep.builds()) == (Phase.OPENING, [])
        await sweep.answer(Action.APPROVE)
        for _ in range(20):
            await sweep.round()
            if sweep.last.phase.final:
                break
        assert sweep.last.phase is Phase.SUCCEEDED
        approved = f":white_check_mark: <@{ADMIN}> approved this sweep. Its build starts."
        assert sweep.slack.posted.count(approved) == 1


async def test_approver_who_muted_the_sweep_is_still_asked_and_not_mentioned_about_the_rest(redis):
    story = Approved(redis, used=4.5, answers=Action.APPROVE)
    muted = {ADMIN: Personal(name="boss", muted=(SWEEP,))}
    story.clients.config = replace(story.clients.config, people=muted)
    slack = (await story.ends()).slack
    assert slack.loud[0].startswith(f"{ASKS}Waiting for approval by <@{ADMIN}>: ")
    assert slack.posted[1] == ":white_check_mark: boss approved this sweep. Its build starts."


async def test_crash_at_any_call_starts_an_approved_sweep_once_and_a_declined_one_never(redis):
    for action, phase in ((Action.APPROVE, Phase.SUCCEEDED), (Action.DECLINE, Phase.FAILED)):
        calm = await Approved(redis, used=4.5, answers=action).ends()
        assert (calm.last.phase, calm.slack.opened) == (phase, 1)
        for dies_at in sample(range(1, calm.clock.calls + 1), every=40):
            hurt = await Approved(redis, used=4.5, answers=action, crash_at=dies_at).ends()
            assert hurt.last.phase is phase
            assert hurt.slack.opened <= 2  # Slack's answer was lost with the worker
            # One that was posted twice, because the worker died in between, shows the request.
            told = [text for text in hurt.texts() if "Waiting for approval" not in text]
            assert [*dict.fromkeys(told)] == calm.texts()
            assert not any(
                action in str(shown) for action in (APPROVE, DECLINE) for shown in hurt.slack.shown.values()
            )


async def test_sweep_of_a_teams_ci_job_asks_the_teams_approvers_and_sends_nobody_a_direct_message(redis):
    """Only the budget of its token is exceeded, which the owner of a personal token could approve."""
    requester = Requester(
        user="team-vision",
        user_name="team vision",
        channel="C1",
        via="API for CI nightly",
        account="ci nightly",
        account_budget="1",
    )
    story = Approved(redis, answers=Action.APPROVE, sweep={"requester": requester})
    vision = Team(name="vision", members=(OWNER,), approvers=(STRANGER,))
    story.clients.config = replace(CONFIG, teams=(vision,))
    sweep = await story.ends()
    assert sweep.last.phase is Phase.SUCCEEDED
    _, approved, *rest = sweep.slack.posted
    asked = sweep.slack.loud[0]
    assert asked.startswith(f"{ASKS}Waiting for approval by <@{STRANGER}>: ")
    assert approved == f":white_check_mark: <@{ADMIN}> approved this sweep. Its build starts."
    assert any(each.startswith(":white_check_mark: team vision ") for each in rest)
    assert sweep.slack.ephemeral_messages == []


async def test_of_two_sweeps_checked_at_once_one_waits(redis):
    """Each needs 6 of the 10 GPU-hours."""
    story = Approved(redis)
    story.store = GapStore(redis, prefix="life")
    story.clients = replace(story.clients, store=story.store)

    async def reconciled(sweep):
        lease = Lease(WorkItem.sweep(sweep), f"worker of {sweep}", failures=0, key=f"life:lease:{sweep}")
        await redis.set(lease.key, lease.token)
        return await reconcile(lease, story.clients)

    async def second_starts():
        await reconciled(SECOND)

    async with story.started():
        another = a_sweep(id=SECOND, request_id="trigger-2")
        await story.store.create(another, [SECOND], "trigger-2")
        for each in (SWEEP, SECOND):
            await reconciled(each)  # planned
            assert (await story.store.get(each)).phase is Phase.OPENING
        story.store.meanwhile = second_starts
        assert await reconciled(SWEEP) == timedelta(0)
        await reconciled(SWEEP)
        first, second = await story.store.get(SWEEP), await story.store.get(SECOND)
        assert (first.phase, second.phase) == (Phase.OPENING, Phase.PENDING)
        assert first.reason == (
            "the forecast is 6 GPU-h, and ada has used 6 of 10 GPU-h this month, 6 GPU-h of it "
            "for unfinished sweeps"
        )


async def test_ended_sweeps_count_in_their_month_for_person_team_and_token(redis):
    story = Approved(redis)
    story.clients.config = replace(
        CONFIG,
        budgets=Budgets(person="10", team="20"),
        teams=(Team(name="vision", members=(OWNER, STRANGER)),),
    )
    async with story.started():
        kept = story.clients.kept_results
        last_month = NOW - timedelta(days=31)
        for each in (
            ended("lr-a-a", 1),
            ended("lr-b-b", 2, owner=STRANGER),
            ended("lr-c-c", 4, account="a1"),
            ended("lr-d-d", 8, at=last_month),
            ended("lr-e-e", 16, owner=ADMIN),
        ):
            await kept.save(each)
        by_token = replace(REQUESTER, account="a1", account_budget="5")
        found = {each.limit.whose: each.used for each in await allowances(by_token, story.clients)}
        assert found == {"the token": 4, "ada": 5, "team vision": 7}


async def test_sweep_that_just_ended_counts_with_its_results_or_until_they_are_kept_with_its_forecast(redis):
    story = Approved(redis)
    plan = replace(PLAN, trial_forecast=Forecast(gpu_hours=1))
    async with story.started():
        await story.clients.kept_results.save(ended("lr-a-a", 3))
        for name in ("lr-a-a", "lr-b-b"):
            record = a_sweep(Phase.SUCCEEDED, plan=plan, outbox=(Event(kind="succeeded", text="Done"),))
            await story.store.create(record, [name], name)
        told = a_sweep(Phase.SUCCEEDED, plan=plan)
        await story.store.create(told, ["lr-c-c"], "lr-c-c")  # its results were kept too long ago
        [found] = await allowances(REQUESTER, story.clients, excluded=SWEEP)
        assert (found.used, found.expected) == (3, plan.space.max_trials)


@pytest.mark.parametrize(("hourly", "cost"), [((2, 5, 3), 20), ((), 0)])
async def test_money_counts_hours_of_unknown_models_at_the_highest_price(redis, hourly, cost):
    story = Approved(redis)
    prices = tuple(Price(model=f"M{each}", hourly=each) for each in hourly)
    budgets = Budgets(person="$100", sweep="$30")
    story.clients.config = replace(CONFIG, currency="$", budgets=budgets, prices=prices)
    async with story.started():
        await story.clients.kept_results.save(ended("lr-a-a", 4))
        found = {each.limit.whose: each.left for each in await allowances(REQUESTER, story.clients)}
        assert found == {"": 30, "ada": 100 - cost}
        story.clients.config = replace(CONFIG, budgets=Budgets(sweep="30"))
        assert [each.left for each in await allowances(REQUESTER, story.clients)] == [30]


@pytest.mark.parametrize(
    ("space", "fact"),
    [
        (HOUR, "*Forecast*\n6 GPU-h; fits the budgets"),
        (
            SPACE,
            "*Approval*\nNeeded before the build: the forecast is unknown, and ada has used 0 of 10 GPU-h",
        ),
    ],
)
async def test_preview_shows_the_forecast_and_whether_someone_must_approve(redis, monkeypatch, space, fact):
    monkeypatch.setattr("handlers.launch_form.SUBMISSION_DELAY", 0)
    async with a_slack_user(redis, BUDGETED) as ada:
        ada.git.spaces["lr"] = space
        await ada.slack.command("ada", "sweeps", "/sweep", "branch=main")
        await ada.choose("sweep_space", "lr")
        await ada.slack.submit("ada")
        await ada.runs()
        assert fact in ada.shows()


async def test_decline_asks_for_a_reason_which_the_thread_shows(redis):
    async with open_session(redis, image=True, space=SPACE, config=BUDGETED) as session:
        await session.rounds(4)
        assert "Waiting for approval" in listing(await session.simulation.store.listed())
        assert await session.clicks(APPROVE, person="grace") == [
            f"You can't approve this sweep. Ask <@{ADMIN}>."
        ]
        session.simulation.clients.config = replace(BUDGETED, admins=(GRACE.id,))
        await session.clicks(DECLINE, person="grace", rounds=0)
        assert session.slack.top("grace")["title"]["text"] == "Decline this sweep?"
        await session.slack.enter("grace", "value", "use tiny,  please")
        assert await session.slack.submit("grace") == {}
        await session.settled()
        await session.rounds(4)
        assert "Declined by grace: use tiny, please" in session.thread()[-1]
        assert not list(session.simulation.kubernetes.peek("Experiment"))


@pytest.mark.parametrize(
    ("ends", "says"),
    [
        (Action.APPROVE, ":white_check_mark: Waited for approval until <!date^"),
        (Action.DECLINE, ":x: Waited for approval until <!date^"),
        (Action.CANCEL, f":no_entry_sign: <@{ADMIN}> cancelled this sweep before it was approved."),
        (None, ":x: Waited for approval until <!date^"),
    ],
)
async def test_message_that_asks_shows_why_it_did_in_place_of_its_buttons(redis, ends, says):
    budgets = replace(BUDGETED.budgets, days=3)
    async with open_session(
        redis, image=True, space=SPACE, config=replace(BUDGETED, budgets=budgets)
    ) as session:
        await session.rounds(4)
        simulation = session.simulation

        def asking():
            replies = session.slack.messages(CHANNEL, session.parent()["ts"])[1:]
            return [(each["text"], APPROVE in str(each.get("blocks"))) for each in replies]

        assert [has_buttons for _, has_buttons in asking()] == [True]
        simulation.clients = replace(simulation.clients, now=lambda: NOW + timedelta(hours=25))
        await session.rounds(3)
        first, second = asking()
        assert first == (":hourglass_flowing_sand: Asked again in a newer message.", False)
        assert "lr-brave-otter>* · Still waiting for approval by" in second[0]
        assert second[1]
        if ends:
            await simulation.store.add_command(SWEEP, Command(action=ends, user=ADMIN, user_name="boss"))
        else:
            simulation.clients = replace(simulation.clients, now=lambda: NOW + timedelta(days=3))
        await session.rounds(4)
        assert not any(has_buttons for _, has_buttons in asking())
        assert any(text.startswith(says) for text, _ in asking()), asking()
