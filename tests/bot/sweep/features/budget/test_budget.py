"""What a sweep with a budget counts, shows, and expects, and when it starts no more trials."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.budget import Budget
from bot.core.commands import Action, Command
from bot.core.record import Phase
from bot.core.space import SEARCH_SERVICE
from bot.sweep.decisions.advance import advance, requeue_after
from bot.sweep.decisions.commands import apply_command
from bot.sweep.decisions.parent_message import Links, parent
from bot.sweep.decisions.required_changes import required_changes
from bot.sweep.features.budget import FEATURE
from bot.sweep.features.budget.decide import BudgetState
from bot.sweep.model.experiment import OUT_OF_BUDGET
from bot.sweep.model.observation import Observation
from k8s.engine import TrialState
from tests.bot.factories import ADMIN, CONFIG, OWNER, PLAN, STRANGER
from tests.bot.sweep.model.observations import DONE, LATER, OPEN, RUNNING, a_pod, a_trial, after, kinds

HOUR = timedelta(hours=1)
BUDGET = Budget(gpu_hours=10)
LIVE = (a_trial("t1"), a_trial("t2"))


def a_budget_sweep(budget=BUDGET, *, trials=4, gpus=1, nodes=1, **changes):
    plan = replace(PLAN, budget=budget, gpus=gpus, nodes=nodes, space=replace(PLAN.space, max_trials=trials))
    return replace(RUNNING, plan=plan, **changes)


def ran(trial, start, end=None, **facts):
    """A pod that had its GPUs from and to these hours before LATER; None: it still has."""
    return a_pod(
        trial,
        scheduled=LATER - start * HOUR,
        ended=end and LATER - end * HOUR,
        finished=end is not None,
        **facts,
    )


def done(name):
    return a_trial(name, TrialState.SUCCEEDED, 0.5)


def seen(*pods, trials=LIVE, sweep=None, **facts):
    return after(sweep or a_budget_sweep(), experiment=OPEN, trials=trials, pods=pods, **facts)


def used(sweep):
    return sweep.of(BudgetState).used


def text(sweep):
    return parent(sweep, Links()).blocks[0]["text"]["text"]


def test_pods_count_from_their_node_to_their_end_and_deleted_ones_to_their_trials_end():
    sweep = a_budget_sweep(Budget(gpu_hours=100), gpus=4, nodes=2)
    pods = (
        ran("t1", 3, 1, began=LATER - 2 * HOUR),  # it pulled its image for an hour
        replace(ran("t1", 3, 1), name="t1-1-x", index=1),
        ran("t2", 0.5),
        a_pod("t3"),
    )
    assert used(seen(*pods, sweep=sweep)) == pytest.approx(4 * (2 + 2 + 0.5))
    assert used(seen(ran("t1", 2), sweep=a_budget_sweep(phase=Phase.PENDING))) == 2
    last = used(seen(ran("t1", 2.04), sweep=a_budget_sweep(phase=Phase.STOPPING)))
    assert last == pytest.approx(2.04)  # it isn't rounded any more
    first = seen(ran("t1", 2), replace(ran("t2", 2), name="t2-y"))
    ended = replace(a_trial("t1", TrialState.KILLED), ended=LATER + 0.5 * HOUR)
    later = seen(ran("t2", -0.7), sweep=first, trials=(ended, a_trial("t2")), now=LATER + HOUR)
    assert used(later) == pytest.approx(2.5 + 3 + 0.3)  # the second trial's new pod has been there for less
    assert used(seen(sweep=later, trials=(ended,), now=LATER + 2 * HOUR)) == pytest.approx(2.5 + 3 + 1.3)


def test_message_shows_the_use_its_price_and_the_forecast_once_a_trial_has_finished():
    assert "\n2 of 10 GPU-h\n" in f"{text(seen(ran('t1', 1), ran('t2', 1)))}\n"
    # Of 2 h are one finished trial, and what the running ones and one more are expected to need.
    sweep = seen(ran("t0", 3, 1), ran("t1", 1), ran("t2", 0.5), trials=(done("t0"), *LIVE))
    assert "\n3.5 of 10 GPU-h; about 8 needed for all trials" in text(sweep)
    # A trial that runs longer than that shows that others can.
    ended = (done("t0"), done("t3"))
    longer = seen(ran("t0", 3, 2), ran("t3", 3, 1), ran("t1", 3), trials=(*ended, a_trial("t1")))
    assert "\n6 of 10 GPU-h; about 8 needed for all trials" in text(longer)
    sweep = seen(ran("t1", 2.1), sweep=a_budget_sweep(Budget(gpu_hours=40, price=2.5, currency="$")))
    assert "\n$5.00 of $100" in text(sweep)  # shown in steps of 1%
    sweep = seen(ran("t1", 9), sweep=RUNNING)
    assert sweep.of(BudgetState) == BudgetState()
    assert "GPU-h" not in text(sweep)


def test_sweep_without_room_for_another_usual_trial_drains_once():
    pods, trials = (ran("t0", 4, 0), ran("t1", 1), ran("t2", 1)), (done("t0"), *LIVE)
    roomy = seen(*pods, trials=trials, sweep=a_budget_sweep(Budget(gpu_hours=16)))
    assert (roomy.draining, kinds(roomy)) == ("", [])
    full = seen(*pods, trials=trials, sweep=a_budget_sweep(Budget(gpu_hours=15.9)))
    assert full.draining == OUT_OF_BUDGET
    assert full.outbox[-1].text == (
        ":hourglass_flowing_sand: Budget of 15.9 GPU-h has no room for a trial beside the running ones: no "
        "new trials start; running trials finish."
    )
    observed = Observation(experiment=OPEN, trials=trials, pods=pods)
    [patch] = required_changes(full, observed, LATER).patch
    assert patch.body["status"]["conditions"][-1]["reason"] == "SweepbotDrained"
    assert kinds(seen(*pods, trials=trials, sweep=full)) == kinds(full)


def test_budget_that_the_first_trials_use_up_is_noticed_without_a_finished_one():
    sweep = a_budget_sweep(Budget(gpu_hours=6), gpus=2)
    early = seen(ran("t1", 1), ran("t2", 1), sweep=sweep)
    assert early.draining == ""
    due = requeue_after(early, early, LATER)
    assert due == timedelta(minutes=5)
    close = seen(ran("t1", 1.48), ran("t2", 1.48), sweep=sweep)
    wait = requeue_after(close, close, LATER)
    assert wait == timedelta(seconds=72)
    assert seen(ran("t1", 1.48), ran("t2", 1.48), sweep=close, now=LATER + wait).draining == OUT_OF_BUDGET


@pytest.mark.parametrize("budget", [1, 4, 10, 16, 30, 100])
@pytest.mark.parametrize("first", ["t0", "t3"])
def test_trials_of_two_gpus_are_decided_alike_with_twice_the_budget(budget, first):
    pods, trials = (ran(first, 4, 0), ran("t1", 1), ran("t2", 1)), (done("t0"), *LIVE)

    def decided(gpus):
        before = a_budget_sweep(Budget(gpu_hours=gpus * budget, usual=gpus * 2.0), gpus=gpus, trials=9)
        sweep = seen(*pods, trials=trials[first != "t0" :], sweep=before)
        limits = FEATURE.prepare(before, before.plan.experiment)["spec"]
        state, due = sweep.of(BudgetState), requeue_after(sweep, sweep, LATER)
        figures = used(sweep) / gpus, state.needed and state.needed / gpus, state.waits
        return figures, limits, sweep.trials_now, sweep.draining, sweep.to_kill, due

    assert decided(2) == decided(1)


@pytest.mark.parametrize(
    ("changes", "trials"),
    [
        ({"holds": ("pause",)}, LIVE),  # no trial starts anyway
        ({"draining": "drained"}, LIVE),
        ({}, (*LIVE, a_trial("t3"), a_trial("t4"))),  # all trials have started
    ],
)
def test_sweep_that_starts_no_trials_anyway_keeps_its_reason(changes, trials):
    sweep = seen(ran("t1", 9), ran("t2", 9), sweep=a_budget_sweep(**changes), trials=trials)
    assert sweep.draining == changes.get("draining", "")
    assert requeue_after(sweep, sweep, LATER) == timedelta(minutes=5)


def test_failed_trial_and_one_that_ended_early_do_not_show_how_long_others_take():
    ended = replace(ran("t1", 1, 0), exit=(0, "Completed", ""))
    pods = (ran("t0", 6, 0), ended)
    assert (
        seen(*pods, trials=(done("t0"), a_trial("t1")), sweep=a_budget_sweep(Budget(gpu_hours=13))).draining
        == ""
    )
    sweep = seen(
        ran("t0", 2, 1.9), trials=(a_trial("t0", TrialState.FAILED),), sweep=a_budget_sweep(trials=9)
    )
    assert sweep.trials_now == 2


@pytest.mark.parametrize(
    ("budget", "algorithm", "hint"),
    [
        (BUDGET, "random", "Used 12 of 10 GPU-h. For more trials: `/sweep rerun lr-brave-otter budget=30`"),
        (
            Budget(gpu_hours=20, price=5, currency="$"),
            SEARCH_SERVICE,
            "Used $60.00 of $100. For more trials: `/sweep rerun lr-brave-otter budget=$200 from=lr-brave",
        ),
    ],
)
def test_end_says_what_was_used_and_how_to_run_the_other_trials(budget, algorithm, hint):
    state = BudgetState(used=12.0, needed=30.0)
    sweep = a_budget_sweep(budget, phase=Phase.SUCCEEDED, draining=OUT_OF_BUDGET).put(state)
    sweep = replace(sweep, plan=replace(sweep.plan, space=replace(sweep.plan.space, algorithm=algorithm)))
    assert hint in text(sweep)
    assert hint in text(replace(sweep, phase=Phase.STOPPING))
    paused = text(replace(sweep, phase=Phase.PAUSED))
    assert budget.text in paused
    assert "Used" not in paused
    enough = replace(sweep, draining="")
    assert "For more trials" not in text(enough)


def asked(sweep, budget, user=OWNER):
    command = Command(action=Action.BUDGET, user=user, user_name="ada", budget=budget)
    return seen(ran("t1", 1), sweep=sweep, commands=(command,))


@pytest.mark.parametrize("user", [OWNER, ADMIN])
@pytest.mark.parametrize(
    ("budget", "typed", "shown"),
    [
        (BUDGET, "60", "60 GPU-h"),
        (Budget(gpu_hours=20, price=5, currency="$"), "$120", "$120"),
        (Budget(gpu_hours=20, price=5, currency="$"), "60", "60 GPU-h"),
    ],
)
def test_owner_or_admin_raises_the_budget_of_a_running_sweep(budget, typed, shown, user):
    sweep = asked(a_budget_sweep(budget), typed, user)
    assert f"raised the budget to {shown}." in sweep.outbox[-1].text
    assert f" of {shown}" in text(sweep)


@pytest.mark.parametrize(
    ("changes", "typed", "user", "why"),
    [
        ({}, "60", STRANGER, "can raise the budget of `lr-brave-otter`."),
        ({}, "10", OWNER, "already has a budget of 10 GPU-h. Set a higher one."),
        ({}, "$60", OWNER, "budget= must be GPU-hours, as before; got $60."),
        (
            {},
            "€60",
            OWNER,
            "budget= must be GPU-hours, such as 40, or money, such as $100: from 0.0001 to 99,9",
        ),
        ({"budget": None}, "60", OWNER, "has no budget."),
        ({"draining": OUT_OF_BUDGET}, "60", OWNER, "is draining: no new trials start. Rerun it"),
        ({"phase": Phase.SUCCEEDED}, "60", OWNER, "has already ended."),
    ],
)
def test_budget_that_cannot_be_raised_stays_with_the_reason(changes, typed, user, why):
    before = a_budget_sweep(**changes)
    sweep = asked(before, typed, user)
    assert why in sweep.outbox[0].text
    assert sweep.plan == before.plan


def ended_sweep(used):
    """A sweep whose trials are all done, with the GPU-hours that it has used."""
    plan = replace(a_budget_sweep().plan, space=replace(PLAN.space, max_trials=4, extendable=True))
    sweep = replace(RUNNING, plan=plan, phase=Phase.SUCCEEDED, ending=Phase.SUCCEEDED)
    return sweep.put(BudgetState(used=used))


def given(sweep, action, experiment):
    command = Command(action=action, user=OWNER, user_name="ada", trials=20)
    return apply_command(sweep, command, Observation(experiment=experiment), CONFIG, LATER)


@pytest.mark.features("extension")
def test_trials_of_a_used_budget_do_not_start_again():
    refused = given(ended_sweep(10), Action.EXTEND, DONE)
    assert refused.phase is Phase.SUCCEEDED
    fix = "Set a higher one: `/sweep rerun lr-brave-otter budget=…`"
    assert f"has used its budget of 10 GPU-h. {fix}" in refused.outbox[-1].text


@pytest.mark.features("extension")
def test_extension_without_room_for_a_trial_starts_none():
    """Katib would start some at once if the ended experiment got more of them."""
    extended = given(ended_sweep(9.6), Action.EXTEND, DONE)
    assert (extended.phase, extended.extending) == (Phase.RUNNING, True)
    names = "t1", "t2", "t3", "t4"
    found = Observation(
        experiment=DONE,
        trials=tuple(map(done, names)),
        pods=tuple(ran(name, 3, 0.6) for name in names),
    )
    drained = advance(extended, found, CONFIG, LATER)
    assert drained.draining == OUT_OF_BUDGET
    assert required_changes(drained, found, LATER).patch == ()


def test_raised_budget_is_written_to_the_configmap():
    assert asked(a_budget_sweep(durable_phase=Phase.RUNNING), "60").durable_phase is not Phase.RUNNING


def test_message_says_why_one_trial_runs_at_a_time_and_then_why_fewer_do():
    line = "\nTrials run one at a time until one succeeds: what it uses shows how many fit the budget."
    for pods in ((ran("t1", 1),), (ran("t0", 2, 1), ran("t1", 1))):
        trials = (a_trial("t0", TrialState.FAILED), a_trial("t1"))[-len(pods) :]
        assert line in text(seen(*pods, trials=trials, sweep=a_budget_sweep(trials=9)))
    pods, trials = (ran("t0", 2, 1), ran("t1", 1)), (done("t0"), a_trial("t1"))
    few = seen(*pods, trials=trials, sweep=a_budget_sweep(Budget(gpu_hours=6), trials=9))
    assert "\nFewer trials run at once, because long ones could exceed the budget." in text(few)
    full = (*pods, ran("t2", 1)), (*trials, a_trial("t2"))
    two = seen(*full[0], trials=full[1], sweep=a_budget_sweep(Budget(gpu_hours=6), trials=9))
    assert (two.draining, "Fewer trials" in text(two)) == ("", False), "no more would run in parallel"
    # Of the 16 left, the running one can need 4 more, and each other 5; the last of them only the usual 1.
    three = seen(*pods, trials=trials, sweep=a_budget_sweep(Budget(gpu_hours=18), trials=9))
    assert three.trials_now == len(trials) + 3
    enough = seen(*pods, trials=trials, sweep=a_budget_sweep(Budget(gpu_hours=100), trials=9))
    assert (enough.trials_now, "trials run at once" in text(enough)) == (0, False)


def test_sweep_over_its_budget_by_its_longest_trial_stops_the_others():
    pods = ran("t0", 9, 5), ran("t1", 5), ran("t2", 5), ran("t3", 1)
    trials = done("t0"), *LIVE, a_trial("t3")
    within = seen(*pods, trials=trials, sweep=a_budget_sweep(Budget(gpu_hours=11)))
    assert within.to_kill == {}
    due = requeue_after(within, within, LATER)
    assert due == timedelta(minutes=5)
    over = seen(*pods, trials=trials, sweep=a_budget_sweep(Budget(gpu_hours=10)))
    assert over.to_kill.keys() == {"t2", "t3"}
    gone = a_trial("t2", TrialState.KILLED), a_trial("t3", TrialState.KILLED)
    told = seen(*pods[:2], trials=(done("t0"), LIVE[0], *gone), sweep=over).outbox[-1].text
    assert "Sweepbot stopped trial `t" in told
    assert "the sweep was over its budget by as much as its longest trial" in told


def test_running_trials_are_looked_at_when_they_could_exceed_the_limit():
    trials = done("t0"), *LIVE, a_trial("t3")
    pods = ran("t0", 9, 5), ran("t1", 5), ran("t2", 5)
    sweep = seen(*pods, trials=trials, sweep=a_budget_sweep(Budget(gpu_hours=9.02)))  # of 14 used, 5 by one
    assert requeue_after(sweep, sweep, LATER) == timedelta(seconds=72)
    early = (ran("t1", 1.98), ran("t2", 1.98))
    drained = seen(*early, trials=trials[1:], sweep=a_budget_sweep(Budget(gpu_hours=2), draining="drained"))
    assert requeue_after(drained, drained, LATER) == timedelta(seconds=72)
    paused = replace(drained, draining="", holds=("pause",))
    over = seen(*pods, trials=trials, sweep=a_budget_sweep(Budget(gpu_hours=9.02), holds=("pause",)))
    for each in (paused, over):
        assert requeue_after(each, each, LATER) == timedelta(seconds=72)


def test_plain_sweep_has_the_plans_counts_and_a_roomy_budget_lifts_the_limit():
    plan = replace(a_budget_sweep(trials=9).plan, budget=None)
    plain = replace(RUNNING, plan=plan)
    assert FEATURE.prepare(plain, plan.experiment) == plan.experiment
    observed = Observation(experiment=OPEN, trials=LIVE)
    assert FEATURE.steer(plain, plan, OPEN, observed, LATER) is None
    roomy = a_budget_sweep(Budget(gpu_hours=100), trials=9)
    patch = FEATURE.steer(roomy, roomy.plan, OPEN, observed, LATER)
    assert patch.body["spec"]["maxTrialCount"] == 9
