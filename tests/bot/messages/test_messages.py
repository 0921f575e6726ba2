"""The parent shows the current state, events are reported once, and user text mentions no one."""

import re
from dataclasses import replace

import pytest

from bot.answers.messages import status
from bot.core.events import Event, EventKind, Health, HealthStatus, Progress, Result
from bot.core.queueing import QueueState
from bot.core.record import Phase
from bot.core.request import Requester
from bot.messages.events import EVENTS, FROM_RESULTS, event_text
from bot.messages.first_trial import health
from bot.messages.parent import Links, parent
from bot.messages.recipients import is_loud
from bot.slack.mrkdwn import MAX_CODE_SIZE, block, code, link, place, plain
from local.slack.validation import complaints
from tests.bot.factories import NOW, OWNER, PLAN, REQUEST, a_sweep

BEST = Result(trial="lr-brave-otter-x1", value=0.03125, parameters={"lr": "0.01", "optimizer": "adam"})
BUSY = Progress(running=2, waiting=1, finishing=1, succeeded=1, failed=1, best=BEST)
ILL = Health(
    status=HealthStatus.WAITING, key="unschedulable", text="No room.", fix="Wait.", detail="0/2", trial="t1"
)
RUNNING = a_sweep(Phase.RUNNING, submitted=True, progress=BUSY)
NASTY = "<!channel> <@U1> *x* `y` ```z``` & \u202eevil 🚀"


def shown(sweep):
    message = parent(sweep, Links())
    return "\n".join(b["text"]["text"] for b in message.blocks if b["type"] == "section")


def test_parent_of_a_running_sweep_summarizes_it():
    assert shown(RUNNING).splitlines() == [
        ":runner: *lr-brave-otter* · Running",
        "`lr` on `main` @ `01234567` “Try a wider net” · 1 GPU per trial · *ada*",
        "`██████████░░░░░░░░░░`  2 of 4 trials · 2 running · 1 waiting · 1 finishing · 1 failed",
        "Best so far: `val_loss` *0.03125* with `lr=0.01 optimizer=adam`",
    ]


def test_parent_of_a_commit_without_a_message_shows_its_hash_alone():
    silent = shown(replace(RUNNING, plan=replace(PLAN, subject=" ")))
    assert f"@ `{PLAN.commit[:8]}` · " in silent
    assert "“" not in silent


def test_final_sweep_shows_the_reason_and_best_result():
    one = replace(RUNNING, progress=Progress(failed=1), plan=replace(PLAN, gpus=2))
    ended = replace(one, phase=Phase.FAILED, reason="1 trial failed")
    assert shown(ended).splitlines() == [
        ":x: *lr-brave-otter* · Failed: 1 trial failed",
        "`lr` on `main` @ `01234567` “Try a wider net” · 2 GPUs per trial · *ada*",
        "`█████░░░░░░░░░░░░░░░`  1 of 4 trials · 1 failed",
    ]
    assert "\nBest: `val_loss` *0.03125*" in shown(replace(RUNNING, phase=Phase.CANCELLED))


def test_parent_links_only_what_exists():
    message = parent(RUNNING, Links(katib="https://kf/x", mlflow="https://ml/y"))
    [context] = [b for b in message.blocks if b["type"] == "context"]
    assert context["elements"][0]["text"] == "<https://kf/x|Katib>  ·  <https://ml/y|Runs in MLflow>"


@pytest.mark.parametrize(
    ("phase", "submitted", "buttons"),
    [
        (Phase.OPENING, False, ["Logs", "Cancel sweep"]),
        (Phase.BUILDING, False, ["Logs", "Cancel sweep"]),
        (Phase.RUNNING, True, ["Trials", "Logs", "Pause", "Pause now", "Cancel sweep"]),
        (Phase.PAUSED, True, ["Resume", "Results", "Logs", "Cancel sweep"]),
        (Phase.STOPPING, True, ["Logs"]),
        (Phase.SUCCEEDED, True, ["Results", "Logs", "Rerun"]),
        (Phase.FAILED, False, ["Logs", "Rerun"]),
    ],
)
def test_parent_buttons_follow_the_phase(phase, submitted, buttons):
    [actions] = [
        b for b in parent(a_sweep(phase, submitted=submitted), Links()).blocks if b["type"] == "actions"
    ]
    assert [each["text"]["text"] for each in actions["elements"]] == buttons
    confirmed = {each["text"]["text"] for each in actions["elements"] if "confirm" in each}
    assert confirmed == set(buttons) - {"Trials", "Logs", "Results"}


@pytest.mark.parametrize(
    ("phase", "effect", "deny"),
    [
        (Phase.RUNNING, "Stops all running trials", "Keep running"),
        (Phase.PAUSED, "no more trials can start", "Keep sweep"),
        (Phase.HELD, "no more trials can start", "Keep sweep"),
    ],
)
def test_cancel_button_states_its_effect_in_the_phase(phase, effect, deny):
    [actions] = [b for b in parent(a_sweep(phase, submitted=True), Links()).blocks if b["type"] == "actions"]
    confirm = next(each["confirm"] for each in actions["elements"] if each["text"]["text"] == "Cancel sweep")
    assert effect in confirm["text"]["text"]
    assert confirm["deny"]["text"] == deny


def test_parent_names_who_used_the_button():
    done = a_sweep(Phase.CANCELLED, cancelled_by="U7")
    assert "Cancelled by <@U7>" in shown(done)
    assert parent(done, Links()).text == "lr-brave-otter: Cancelled by <@U7>"


def test_fingerprint_changes_only_with_the_content():
    same = replace(RUNNING, version=9, sent_keys=("x",))
    assert parent(same, Links()).fingerprint == parent(RUNNING, Links()).fingerprint
    more = replace(RUNNING, progress=replace(BUSY, running=1))
    assert parent(more, Links()).fingerprint != parent(RUNNING, Links()).fingerprint


@pytest.mark.parametrize("kind", EVENTS)
def test_event_text_has_no_empty_placeholders(kind):
    happened = Event(kind=kind, text="why", detail="log", trial="t1", result=BEST, seconds=41.7)
    text = event_text(replace(RUNNING, health=ILL), happened)
    assert text
    assert "None" not in text


@pytest.mark.parametrize("mood", HealthStatus)
def test_health_message_of_first_trials_can_be_edited(mood):
    """Slack takes 4,000 characters in an edit."""
    text = health(RUNNING, replace(ILL, status=mood, detail="<" * 9000)).text
    assert "No room." in text
    assert len(text) < 4000


def test_health_of_a_failed_first_trial_shows_its_command():
    ill = replace(ILL, parameters={"lr": "0.01"})
    assert (
        "*Command:* `python train.py --lr=0.01`"
        in health(RUNNING, replace(ill, status=HealthStatus.FAILED)).text
    )
    assert "*Parameters:* `lr=0.01`" in health(RUNNING, replace(ill, status=HealthStatus.UNHEALTHY)).text


def test_event_text_covers_every_kind():
    assert set(EVENTS) | FROM_RESULTS == set(EventKind)


def test_end_message_shows_the_command_of_the_best_trial():
    done = replace(RUNNING, phase=Phase.SUCCEEDED, reason="4 trials done")
    text = event_text(done, Event(kind=EventKind.SUCCEEDED, text="4 trials done", result=BEST))
    assert "```\npython train.py --lr=0.01 --optimizer=adam\n```" in text


def test_long_number_is_rounded_in_text_and_exact_in_commands():
    best = replace(BEST, parameters={"lr": "0.0028079050224114393", "width": "128", "seed": "12345678.9"})
    text = event_text(replace(RUNNING, phase=Phase.SUCCEEDED), Event(kind=EventKind.SUCCEEDED, result=best))
    assert "with `lr=0.00280791 width=128 seed=12345678.9`" in text
    assert "--lr=0.0028079050224114393" in text


def test_refusal_lists_each_error_on_its_own_line():
    why = "sweeps/lr.yaml@01234567:100: trials.max: must be at least 1\nsweeps/lr.yaml@01234567:7: `x` is odd"
    assert event_text(RUNNING, Event(kind=EventKind.REFUSED, text=why)).splitlines() == [
        "`lr-brave-otter` didn't start.",
        "`sweeps/lr.yaml@01234567:100` trials.max: must be at least 1",
        "`sweeps/lr.yaml@01234567:7` `x` is odd",
    ]


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        (EventKind.BUILD_STARTED, "image", "Building image for `01234567` from `Dockerfile`."),
        (EventKind.BUILD_STARTED, "code; dependencies reused", ": code; dependencies reused."),
        (EventKind.BUILD_DONE, "image built in 3 s", "Image built in 3 s."),
        (
            EventKind.BUILD_DONE,
            "dependencies reused, code built in 1 s",
            "Image ready: dependencies reused, ",
        ),
    ],
)
def test_build_of_one_image_has_a_shorter_text(kind, text, words):
    assert words in event_text(RUNNING, Event(kind=kind, text=text))


def test_external_text_mentions_no_user_and_stays_quoted():
    nasty = replace(
        RUNNING,
        request=replace(REQUEST, branch=NASTY),
        plan=replace(PLAN, subject=NASTY),
        reason=NASTY,
    )
    for text in (
        shown(nasty),
        event_text(nasty, Event(kind=EventKind.TRIAL_FAILED, text=NASTY, detail=NASTY)),
    ):
        assert "<!channel>" not in text
        assert "<@U1>" not in text
        assert text.count("```") % 2 == 0


def test_messages_of_maximum_size_pass_slacks_limits():
    long = "x" * 5000
    huge = replace(
        RUNNING,
        request=replace(REQUEST, branch=long),
        plan=replace(PLAN, subject=long),
        reason=long,
        progress=replace(BUSY, best=replace(BEST, parameters={f"p{i}": "v" * 60 for i in range(60)})),
    )
    assert complaints(list(parent(huge, Links(katib="https://k/x", mlflow="https://m/x")).blocks)) == []
    assert len(event_text(huge, Event(kind=EventKind.TRIAL_FAILED, detail=long))) < 4000


def test_long_log_keeps_its_end():
    text = block("\n".join(f"line {n}" for n in range(2000)))
    assert text.endswith("line 1999\n```")
    assert text.startswith("```\n…\nline ")
    assert len(text) < MAX_CODE_SIZE + 20


def test_thread_in_direct_messages_says_where_commands_work():
    requester = Requester(user="U1", user_name="ada", channel="D1")
    [_, below, _] = parent(replace(RUNNING, requester=requester), Links()).blocks
    assert below["elements"][0]["text"] == (
        "I can't read replies here. Run `/sweep logs lr-brave-otter` in any channel"
    )


def test_log_shows_the_last_state_of_a_progress_bar_and_the_end_of_a_long_line():
    assert block("0%\r50%\r100%\ndone\0") == "```\n100%\ndone\n```"
    assert block("y" * 9000).count("y") == MAX_CODE_SIZE


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (plain("a < b & c"), "a &lt; b &amp; c"),
        (code("feat`x`"), "`featˋxˋ`"),
        (code(""), ""),
        (link("https://x", "a|b"), "<https://x|a¦b>"),
        (block(""), ""),
        (place("C1"), "<#C1>"),
        (place("D1"), "direct messages"),
    ],
)
def test_mrkdwn_escapes_and_formats(made, expected):
    assert made == expected


def test_sweep_that_did_not_start_shows_no_activity():
    refused = a_sweep(Phase.REFUSED, plan=None, reason="branch=mian isn't in digits.")
    first, second, third = status(refused).splitlines()
    assert first == ":x: *lr-brave-otter* · Didn't start: branch=mian isn't in digits."
    assert second == "`lr` on `main` · *ada*"
    assert re.fullmatch(r"Requested <!date.*> · ended <!date.*>", third)


@pytest.mark.parametrize(
    ("phase", "held"), [(Phase.RUNNING, True), (Phase.PAUSED, False), (Phase.SUCCEEDED, False)]
)
def test_parent_names_held_trials_while_trials_can_wait(phase, held):
    sweep = a_sweep(phase, submitted=True, queueing=QueueState(held_by=OWNER))
    assert ("held the waiting trials" in shown(sweep)) == held


@pytest.mark.parametrize(
    ("number", "changes", "line"),
    [
        (1, {}, "\n1 interrupted trial will start again."),
        (2, {}, "\n2 interrupted trials will start again."),
        (1, {"paused_at": NOW}, ""),
        (1, {"drained_by": OWNER}, ""),
        (1, {"phase": Phase.CANCELLED}, ""),
    ],
)
def test_parent_counts_interrupted_trials_until_they_start_again(number, changes, line):
    state = QueueState(interrupted={f"t{each}": NOW for each in range(number)})
    text = shown(replace(a_sweep(Phase.RUNNING, submitted=True, queueing=state), **changes))
    assert line in text if line else "interrupted" not in text


def test_first_trial_that_fits_no_node_mentions_the_owner_and_is_shown_in_the_parent():
    why = "it requests 4 GPUs, and the largest node has 2."
    stuck = Health(
        status=HealthStatus.UNHEALTHY, key="never-fits", text=f"The trial can't fit: {why}", trial="t1"
    )
    sweep = a_sweep(Phase.PENDING, submitted=True, gated=True, health=stuck)
    assert is_loud(sweep, Event(kind=EventKind.HEALTH))
    assert f"<@{OWNER}>" in health(sweep, stuck).text
    assert f":warning: The first trial can't run: {why}" in shown(sweep)
    assert "One trial runs first" not in shown(sweep)
    well = replace(sweep, health=replace(stuck, status=HealthStatus.RECOVERED))
    assert not is_loud(well, Event(kind=EventKind.HEALTH))
    assert "One trial runs first" in shown(well)
