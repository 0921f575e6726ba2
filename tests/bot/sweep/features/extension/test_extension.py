"""A finished sweep offers more trials, or says why it can't run any; an extended one runs until all ended."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given

from bot.core.commands import Action, Command
from bot.core.events import Event, Progress
from bot.core.record import Phase
from bot.core.space import Parameter
from bot.platform.config.limits import Launch, Limits
from bot.platform.config.permissions import launch_denial
from bot.sweep.decisions.commands import apply_command
from bot.sweep.decisions.parent_message import Links, buttons, parent
from bot.sweep.decisions.required_changes import required_changes
from bot.sweep.features.extension import FEATURE, ExtensionState, rejected
from bot.sweep.model.observation import Observation
from k8s.engine import End
from tests.bot.factories import CONFIG, NOW, OWNER, PLAN, STRANGER, a_sweep
from tests.bot.platform.slack.test_escaping import NASTY, escaped
from tests.bot.sweep.model.observations import COUNTS, DONE, LATER, OPEN, RAW, a_trial, after, an_experiment
from tests.cases import cases

EXTENDABLE = replace(PLAN, space=replace(PLAN.space, extendable=True))
FINISHED = a_sweep(
    Phase.SUCCEEDED, submitted=True, plan=EXTENDABLE, ending=Phase.SUCCEEDED, reason="4 trials done"
)
STOPPING = a_sweep(Phase.STOPPING, ending=Phase.SUCCEEDED, submitted=True, image="i")
VALUES = ("1", "2", "3", "4", "5", "6")
SIX = replace(PLAN.space, algorithm="grid", parameters=(Parameter(name="w", values=VALUES),))
ALL_TRIED = replace(SIX, max_trials=6)
FEW = replace(CONFIG, limits=Limits(trials=5))


def applied(sweep, trials=0, config=CONFIG, experiment=DONE):
    command = Command(action=Action.EXTEND, user=OWNER, user_name="ada", trials=trials)
    return apply_command(sweep, command, Observation(experiment=experiment), config, NOW)


def denied(sweep, trials, **known):
    refused = applied(sweep, trials, **known)
    [event] = refused.outbox
    assert (event.kind, refused.phase, refused.extending) == ("not_allowed", sweep.phase, False)
    return event.text.removeprefix("`lr-brave-otter` ")


def ended(end=End.ALL_TRIALS, space=PLAN.space, config=CONFIG, **changes):
    sweep = replace(STOPPING, plan=replace(PLAN, space=space), **changes)
    return after(sweep, experiment=replace(DONE, end=end), config=config)


def offer(sweep):
    return [label for each in buttons(sweep) if "more" in (label := each["text"]["text"])]


@pytest.mark.parametrize(
    ("limit", "more", "effect"),
    [
        (500, 20, "Continues lr-brave-otter with 20 more trials, up to 2 in parallel."),
        (5, 1, "Continues lr-brave-otter with 1 more trial, up to 2 in parallel."),
    ],
)
def test_finished_sweep_offers_as_many_trials_as_the_limit_leaves(limit, more, effect):
    sweep = ended(config=replace(CONFIG, limits=Limits(trials=limit)))
    assert (sweep.phase, sweep.of(ExtensionState)) == (Phase.SUCCEEDED, ExtensionState(more=more))
    [button] = [each for each in buttons(sweep) if each["action_id"] == "extend_sweep"]
    assert button["confirm"]["text"]["text"] == effect
    assert applied(sweep).plan.space.max_trials == 4 + more


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ({"end": End.TARGET}, "Katib only extends a sweep that used all its trials"),
        ({"end": End.DRAINED}, "Katib only extends a sweep that used all its trials"),
        ({"draining": "time limit reached"}, "its time limit was reached"),
        ({"draining": "budget reached"}, "its budget was reached"),
        ({"space": ALL_TRIED}, "all combinations have been tried"),
        ({"config": replace(CONFIG, limits=Limits(trials=4))}, "4 trials are the maximum"),
    ],
)
def test_finished_sweep_that_cannot_run_more_says_why(case, why):
    sweep = ended(**case)
    assert (offer(sweep), sweep.of(ExtensionState)) == ([], ExtensionState(why_not=why))
    assert f"Can't run more trials: {why}" in str(parent(sweep, Links()).blocks)


@pytest.mark.parametrize("ending", [Phase.CANCELLED, Phase.FAILED])
def test_sweep_that_did_not_succeed_offers_no_more_trials(ending):
    sweep = ended(ending=ending)
    assert (sweep.phase, sweep.of(ExtensionState), offer(sweep)) == (ending, ExtensionState(), [])


def test_extend_continues_with_the_new_total_and_the_time_since_its_end():
    again = applied(FINISHED, trials=9)
    text = ":runner: *ada* extended this sweep to 9 trials."
    assert again == replace(
        FINISHED,
        phase=Phase.RUNNING,
        plan=replace(EXTENDABLE, space=replace(EXTENDABLE.space, max_trials=9)),
        extending=True,
        ending=None,
        reason="",
        outbox=(Event(kind="extended", text=text),),
        audit_log=again.audit_log,
    )
    assert again.audit_log[-1].about == "9 trials"
    ends = {"draining": "drained", "holds": ("pause",), "cancelled_by": OWNER}
    stopped = replace(FINISHED, **ends, deadline=NOW + timedelta(minutes=5))
    again = applied(replace(stopped, since=NOW - timedelta(hours=2)), trials=9)
    assert (again.draining, again.holds, again.cancelled_by) == ("", (), None)
    assert again.deadline == NOW + timedelta(hours=2, minutes=5)
    again, more = applied(FINISHED, trials=9), RAW | {"spec": RAW["spec"] | {"maxTrialCount": 9}}
    [patch] = required_changes(again, Observation(experiment=DONE), NOW).patch
    assert (patch.body, patch.subresource) == ({"spec": {"maxTrialCount": 9}}, "")
    assert required_changes(again, Observation(experiment=an_experiment(more, DONE)), NOW).patch == ()
    assert after(again, experiment=DONE) == again
    assert after(again, experiment=OPEN) == again, "Katib runs on with the old number"
    reopened = after(again, experiment=an_experiment(more))
    assert (reopened.extending, after(reopened, experiment=DONE).phase) == (False, Phase.STOPPING)
    auto = replace(EXTENDABLE, space=replace(EXTENDABLE.space, auto=True))
    asked = replace(FINISHED, plan=auto, request=replace(FINISHED.request, parallel=8))
    assert [applied(asked, trials=total).plan.space.parallel for total in (6, 20)] == [6, 8]


def test_gated_experiment_gets_all_of_its_counts():
    opened = a_sweep(Phase.RUNNING, submitted=True, extending=True)
    gated = Observation(experiment=an_experiment(RAW | {"spec": dict.fromkeys(COUNTS, 1)}))
    [patch] = required_changes(opened, gated, NOW).patch
    assert (patch.ref, patch.body, patch.subresource) == (PLAN.experiment_ref, {"spec": COUNTS}, "")
    assert required_changes(replace(opened, extending=False), gated, NOW).patch == ()
    strict = replace(opened, plan=replace(PLAN, space=replace(PLAN.space, max_failed=1)))
    throttled = an_experiment(RAW | {"spec": {"maxTrialCount": 3, "parallelTrialCount": 2}})
    [patch] = required_changes(strict, Observation(experiment=throttled), NOW).patch
    assert patch.body["spec"] == {"maxTrialCount": 4, "maxFailedTrialCount": 1}


def test_rejected_extension_ends_the_sweep_again_as_before():
    done = replace(FINISHED, progress=Progress(succeeded=4))
    again = replace(applied(done, trials=9), outbox=(), audit_log=())
    text = ":x: The cluster rejected the extension:\n```\nno\n```"
    assert rejected(again, Observation(experiment=DONE), "no", LATER) == replace(
        done, plan=again.plan, since=LATER, outbox=(Event(kind="submit_refused", text=text),)
    )
    assert rejected(again, Observation(experiment=OPEN), "no", LATER) is None
    assert rejected(done, Observation(experiment=DONE), "no", LATER) is None


@cases(
    ("sweep", "trials", "known", "why"),
    [
        *(
            (sweep, 9, {}, f"is {state}. Only a finished sweep can be extended.")
            for sweep, state in (
                (a_sweep(Phase.RUNNING, submitted=True), "still running"),
                (a_sweep(Phase.PAUSED), "paused"),
                (a_sweep(Phase.HELD), "on hold"),
                (a_sweep(Phase.STOPPING), "stopping"),
                (replace(FINISHED, plan=None), "still running"),
            )
        ),
        (
            replace(FINISHED, plan=PLAN, since=NOW - timedelta(hours=25)),
            9,
            {},
            (
                "can't be extended: it ended more than 24 h ago. For later sweeps, set `extendable: true` in "
                "the space file."
            ),
        ),
        (FINISHED, 9, {"experiment": None}, "can't be extended: its Katib experiment was deleted."),
        *(
            (
                replace(FINISHED, draining=f"{what} reached"),
                9,
                {},
                (
                    f"can't be extended: its {what} was reached. *Fix:* Run it again with a higher limit: "
                    f"`/sweep rerun lr-brave-otter {key}=…`"
                ),
            )
            for what, key in (("budget", "budget"), ("time limit", "max_hours"))
        ),
        (
            FINISHED,
            9,
            {"experiment": replace(DONE, end=End.TARGET)},
            "can't be extended: Katib only extends a sweep that used all its trials.",
        ),
        (FINISHED, 501, {}, "can have up to 500 trials; got trials=501."),
        (FINISHED, 6, {"config": FEW}, "can have up to 5 trials; got trials=6."),
        (
            replace(FINISHED, plan=replace(PLAN, space=SIX)),
            7,
            {},
            "can have up to 6 trials; got trials=7.",
        ),
        (FINISHED, 4, {}, "already has 4 trials. Set `trials=` to a higher total."),
        (FINISHED, 3, {}, "already has 4 trials. Set `trials=` to a higher total."),
    ],
)
def test_extend_is_denied_with_the_reason(sweep, trials, known, why):
    assert denied(sweep, trials, **known) == why


def test_extend_is_denied_to_owners_who_can_no_longer_start_sweeps():
    config = replace(CONFIG, launch=Launch(people=(STRANGER,)))
    assert denied(FINISHED, 9, config=config) == launch_denial(OWNER, "C1", config) != ""


@pytest.mark.parametrize(
    ("sweep", "config", "trials"),
    [
        (FINISHED, FEW, 5),
        (FINISHED, CONFIG, 500),
        (replace(FINISHED, plan=PLAN, since=NOW - timedelta(hours=24)), CONFIG, 9),
    ],
)
def test_extend_up_to_the_limits_is_allowed(sweep, config, trials):
    assert applied(sweep, trials, config=config).extending


@given(NASTY)
def test_external_text_is_escaped(text):
    sweep = replace(a_sweep(Phase.RUNNING), extending=True)
    escaped(rejected(sweep, Observation(experiment=DONE), text, NOW).outbox[0].text)
    finished = a_sweep(Phase.SUCCEEDED, ExtensionState(why_not=text))
    escaped(FEATURE.footer(finished))


@pytest.mark.parametrize("spared", [{"holds": ("pause",)}, {}])
def test_rejected_counts_do_not_end_a_sweep_that_is_held_or_has_running_trials(spared):
    sweep = a_sweep(Phase.RUNNING, submitted=True, extending=True, **spared)
    trials = () if spared else (a_trial("t1"),)
    seen = Observation(experiment=DONE, trials=trials)
    assert rejected(sweep, seen, "denied the request", LATER) is None
