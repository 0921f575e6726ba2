"""The parent shows the current state, events are reported once, and user text mentions no one."""

import re
from dataclasses import replace

import pytest

from bot.core.events import Progress, Result
from bot.core.record import Phase
from bot.core.request import Requester
from bot.core.sweep_summary import summary_of
from bot.platform.slack.mrkdwn import MAX_CODE_SIZE, block, code, link, place, plain
from bot.sweep.answers.messages import listing, status
from bot.sweep.decisions.parent_message import Links, parent, summary
from bot.sweep.lifecycle.texts import build_failed
from bot.sweep.model.progress import finished_trials
from local.slack.validation import complaints
from tests.bot.factories import PLAN, REQUEST, a_sweep

BEST = Result(trial="lr-brave-otter-x1", value=0.03125, parameters={"lr": "0.01", "optimizer": "adam"})
BUSY = Progress(running=2, waiting=1, finishing=1, succeeded=1, failed=1, best=BEST)
RUNNING = a_sweep(Phase.RUNNING, submitted=True, progress=BUSY)
NASTY = "<!channel> <@U1> *x* `y` ```z``` & \u202eevil 🚀"


def shown(sweep):
    message = parent(sweep, Links())
    return "\n".join(b["text"]["text"] for b in message.blocks if b["type"] == "section")


def test_parent_of_a_running_sweep_summarizes_it():
    assert shown(RUNNING).splitlines() == [
        ":runner: *lr-brave-otter* · Running",
        "Best so far: `val_loss` *0.03125* with `lr=0.01 optimizer=adam`",
        "🟩🟩🟥🟥🟥🟦🟦🟦🟦🟦  2 of 4 trials · 2 running · 1 waiting · 1 finishing · 1 failed",
    ]
    silent = summary(replace(RUNNING, plan=replace(PLAN, subject=" ")))
    assert f"@ `{PLAN.commit[:8]}` · " in silent
    assert "“" not in silent
    sweep = RUNNING.step(image="✓ Image reused", submitted="✓ Submitted")
    message = parent(sweep, Links(katib="https://kf/x", mlflow="https://ml/y"))
    [context] = [b for b in message.blocks if b["type"] == "context"]
    assert context["elements"][0]["text"].splitlines() == [
        "✓ Image reused   ✓ Submitted",
        "`lr` on `main` @ `01234567` “Try a wider net” · 1 GPU per trial, 2 in parallel · *ada*",
        "<https://kf/x|Katib>  ·  <https://ml/y|Runs in MLflow>",
    ]
    done = a_sweep(Phase.CANCELLED, cancelled_by="U7")
    assert "Cancelled by <@U7>" in shown(done)
    assert parent(done, Links()).text == ":no_entry_sign: lr-brave-otter: Cancelled by <@U7>"


def test_parent_of_a_finished_sweep_shows_reason_best_result_and_counts():
    one = replace(RUNNING, progress=Progress(failed=1), plan=replace(PLAN, gpus=2))
    ended = replace(one, phase=Phase.FAILED, reason="1 trial failed")
    assert shown(ended).splitlines() == [
        ":x: *lr-brave-otter* · 1 trial failed",
        "🟥🟥⬜⬜⬜⬜⬜⬜⬜⬜  1 of 4 trials · 1 failed",
    ]
    assert "\nBest: `val_loss` *0.03125*" in shown(replace(RUNNING, phase=Phase.CANCELLED))
    done = Progress(succeeded=1, failed=1, killed=1, stopped_early=1, best=BEST)
    ended = a_sweep(Phase.SUCCEEDED, submitted=True, progress=done, reason=finished_trials(done))
    counts = "4 of 4 trials · 1 failed · 1 stopped · 1 stopped early"
    assert parent(ended, Links()).text.endswith(f"lr-brave-otter: Finished, {counts}")
    assert shown(ended).splitlines()[0] == ":white_check_mark: *lr-brave-otter* · Finished"
    assert "Finished: target reached" in shown(replace(ended, reason="target reached"))
    refused = a_sweep(Phase.REFUSED, plan=None, reason="branch=mian isn't in digits.")
    first, second, third = status(refused).splitlines()
    assert first == ":x: *lr-brave-otter* · Didn't start: branch=mian isn't in digits."
    assert second == "`lr` on `main` · *ada*"
    assert re.fullmatch(r"Requested <!date.*> · ended <!date.*>", third)
    same = replace(RUNNING, version=9, sent_keys=("x",))
    assert parent(same, Links()).fingerprint == parent(RUNNING, Links()).fingerprint
    more = replace(RUNNING, progress=replace(BUSY, running=1))
    assert parent(more, Links()).fingerprint != parent(RUNNING, Links()).fingerprint


def test_list_gives_the_cause_of_a_failure_or_hold():
    cause = "ValueError: `x` " + "y" * 300
    one = a_sweep(Phase.FAILED, reason=cause, permalink="https://s/p1")
    failed, held, done = listing(
        [summary_of(replace(one, phase=each)) for each in (Phase.FAILED, Phase.HELD, Phase.SUCCEEDED)]
    ).splitlines()
    assert failed.startswith(":x: *<https://s/p1|lr-brave-otter>* · ValueError: ˋxˋ yyy")
    assert len(failed) < 250
    assert " · On hold: ValueError: ˋxˋ yyy" in held
    assert " · Finished · " in done


@pytest.mark.parametrize(
    ("phase", "submitted", "buttons"),
    [
        (Phase.OPENING, False, ["Logs", "Cancel sweep"]),
        (Phase.BUILDING, False, ["Logs", "Cancel sweep"]),
        (Phase.PENDING, False, ["Trials", "Logs", "Cancel sweep"]),
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


def test_messages_of_maximum_size_pass_slacks_limits_and_mention_nobody():
    long = "x" * 5000
    huge = replace(
        RUNNING,
        request=replace(REQUEST, branch=long),
        plan=replace(PLAN, subject=long),
        reason=long,
        progress=replace(BUSY, best=replace(BEST, parameters={f"p{i}": "v" * 60 for i in range(60)})),
    )
    assert complaints(list(parent(huge, Links(katib="https://k/x", mlflow="https://m/x")).blocks)) == []
    assert len(build_failed(huge, "", long).text) < 4000
    nasty = replace(
        RUNNING,
        request=replace(REQUEST, branch=NASTY),
        plan=replace(PLAN, subject=NASTY),
        reason=NASTY,
    )
    for text in (shown(nasty), build_failed(nasty, NASTY, NASTY).text):
        assert "<!channel>" not in text
        assert "<@U1>" not in text
        assert text.count("```") % 2 == 0


def test_log_keeps_its_end_and_the_last_state_of_a_progress_bar():
    text = block("\n".join(f"line {n}" for n in range(2000)))
    assert text.endswith("line 1999\n```")
    assert text.startswith("```\n…\nline ")
    assert len(text) < MAX_CODE_SIZE + 20
    assert block("0%\r50%\r100%\ndone\0") == "```\n100%\ndone\n```"
    assert block("y" * 9000).count("y") == MAX_CODE_SIZE


def test_thread_in_direct_messages_says_where_commands_work():
    requester = Requester(user="U1", user_name="ada", channel="D1")
    [_, below, _] = parent(replace(RUNNING, requester=requester), Links()).blocks
    assert below["elements"][0]["text"].endswith(
        "I can't read replies here. Run `/sweep logs lr-brave-otter` in any channel"
    )


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
