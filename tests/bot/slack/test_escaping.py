"""No text of users or machines mentions anybody, links, breaks its message, or is rejected by Slack."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.answers import messages
from bot.core.commands import Action, AuditEntry
from bot.core.events import Event, EventKind, Health, HealthStatus, Progress, Result
from bot.core.record import Phase
from bot.core.request import Requester
from bot.core.space import Parameter
from bot.core.sweep_summary import summary_of
from bot.idle.alerts import update_alerts
from bot.idle.detector import Kind
from bot.idle.messages import warning
from bot.lifecycle.observation import Observation
from bot.messages.events import FROM_RESULTS, event_text
from bot.messages.first_trial import health
from bot.messages.parent import Links, parent
from bot.results.collect import Sources, collect
from bot.slack import mrkdwn
from bot.slack.mrkdwn import plain
from k8s.katib.status import Trial, TrialState
from local.slack.validation import complaints, too_long, view_complaints
from tests.bot.factories import NOW, PLAN, REQUEST, a_sweep
from tests.bot.idle.test_alerts import found

PIECES = (
    *(
        "<!channel>",
        "<!here>",
        "@channel",
        "<@U1>",
        "<#C9>",
        "<https://evil.example|x>",
        "https://evil.example",
    ),
    *("*", "_", "~", "`", "```", "&", "&amp;", "<", ">", "|", "\n", "\r", "\t", "\0", " ", ":tada:", "> "),
    *("\u202e", "\u2066", "\u200f", "שלום", "مرحبا", "🚀", "👩\u200d👩\u200d👧", "long" * 200, "a", "-", "="),
)
# Pieces by the bytes of one draw: a draw for each piece takes four times as long.
NASTY = st.binary(max_size=12).map(lambda raw: "".join(PIECES[byte % len(PIECES)] for byte in raw))
MOODS = st.sampled_from(HealthStatus)
PHASES = st.sampled_from(Phase)
# Sweepbot's own angle brackets.
OURS = re.compile(
    r"<@U[A-Z]+>|<#C1>|<!date\^\d+\^[^|<>]*\|[^|<>]*>|<https://(k|m)/x\|(Katib|Runs in MLflow)>"
)


@st.composite
def sweeps(draw):
    best = Result(trial=draw(NASTY), value=0.5, parameters={"lr": draw(NASTY), draw(NASTY) or "x": "1"})
    entry = AuditEntry(
        at=NOW, user="UGRACE", name=draw(NASTY), action=Action.CANCEL, about=draw(NASTY), refused=draw(NASTY)
    )
    space = replace(PLAN.space, metric=draw(NASTY) or "m", parameters=(Parameter(name=draw(NASTY) or "p"),))
    return a_sweep(
        draw(PHASES),
        request=replace(REQUEST, branch=draw(NASTY), space=draw(NASTY)),
        requester=Requester(user="UOWNER", user_name=draw(NASTY), channel="C1"),
        plan=replace(PLAN, subject=draw(NASTY), space=space),
        reason=draw(NASTY),
        submitted=True,
        thread="1.1",
        progress=Progress(running=3, failed=2, best=best),
        audit_log=(entry,) * draw(st.integers(0, 50)),
        cancelled_by=draw(st.sampled_from([None, "UOWNER", "UGRACE"])),
    )


@st.composite
def trials(draw):
    state = draw(st.sampled_from(TrialState))
    values = {"p": draw(NASTY), draw(NASTY) or "q": draw(NASTY)}
    value = draw(st.sampled_from([None, 0.1, -1e300]))
    return Trial(name=f"t-{draw(NASTY)}"[:60], state=state, parameters=values, value=value, raw={})


def safe(text):
    assert not re.search(r"[<>]", OURS.sub("", text)), text
    clients = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    assert "```" not in clients, text
    for line in clients.splitlines():
        assert line.count("`") % 2 == 0, line
    return text


def shown(blocks):
    assert complaints(list(blocks)) == []
    assert not too_long(list(blocks))
    for block in blocks:
        for part in (block.get("text"), *block.get("elements", ())):
            if part and part["type"] == "mrkdwn":
                assert part["verbatim"] is True
                safe(part["text"])


@settings(max_examples=60, deadline=None)
@given(sweeps(), st.lists(trials(), max_size=5))
def test_external_text_in_the_parent_is_escaped(sweep, found):
    message = parent(sweep, Links(katib="https://k/x", mlflow="https://m/x"))
    shown(message.blocks)
    safe(message.text)
    assert len(message.text) < 4000
    safe(messages.status(sweep))
    safe(messages.listing([summary_of(sweep)] * 30))
    table = messages.results(sweep, collect(sweep, sweep.plan, Sources(trials=found)))
    shown(table.blocks)
    safe(table.text)
    view = messages.running_trials(sweep, Observation(trials=tuple(found)))
    assert view_complaints(view, "modal") == []


@settings(max_examples=60, deadline=None)
@given(sweeps(), MOODS, NASTY, NASTY)
def test_external_text_in_first_trial_messages_is_escaped(sweep, mood, name, detail):
    """Text and fix are Sweepbot's; the log isn't."""
    state = Health(
        status=mood, key="k", text="It failed.", detail=detail, trial=name, parameters={name: detail}
    )
    message = health(sweep, state)
    shown(message.blocks)
    assert len(safe(message.text)) < 4000


# Their text is built by Sweepbot and escaped before: a denial, and a finished message about a first trial.
OWN_MARKUP = {EventKind.NOT_ALLOWED, EventKind.HEALTH, *FROM_RESULTS}


@pytest.mark.parametrize("kind", [kind for kind in EventKind if kind not in OWN_MARKUP])
@settings(max_examples=25, deadline=None)
@given(sweep=sweeps(), detail=NASTY, trial=NASTY, text=NASTY)
def test_external_text_in_thread_messages_is_escaped(kind, sweep, detail, trial, text):
    result = Result(trial=trial, value=1.0, parameters={trial or "p": detail})
    sweep = replace(sweep, cancelled_by="UGRACE")
    reported = event_text(
        sweep, Event(kind=kind, text=text, detail=detail, trial=trial, result=result, by="UGRACE")
    )
    assert not re.search(r"[<>]", OURS.sub("", reported)), reported
    assert reported.count("```") % 2 == 0 or "```" in plain(text)


def test_warning_escapes_user_texts():
    [alert] = update_alerts((), found(Kind.IDLE), {}, NOW)
    shown(warning(alert, {}, NOW).blocks)


def test_thousand_trials_fit_into_a_table_and_a_modal():
    space = replace(PLAN.space, parameters=tuple(Parameter(name=f"parameter_{n}") for n in range(30)))
    sweep = a_sweep(Phase.RUNNING, submitted=True, plan=replace(PLAN, space=space))
    values = {f"parameter_{n}": "0.0028079050224114393" for n in range(30)}
    many = [
        Trial(name=f"{sweep.id}-{n:04}", state=TrialState.LIVE, parameters=values, value=None, raw={})
        for n in range(1000)
    ]
    message = messages.results(sweep, collect(sweep, sweep.plan, Sources(trials=many)))
    shown(message.blocks)
    [in_csv] = message.blocks[-1]["elements"]
    assert re.fullmatch(r"(?!0)\d+ more trials in the CSV\.", in_csv["text"])
    view = messages.running_trials(sweep, Observation(trials=tuple(many)))
    assert view_complaints(view, "modal") == []
    [note] = view["blocks"][-1]["elements"]
    assert note["text"] == f"960 more not shown. Cancel one with `/sweep cancel {sweep.id} TRIAL`"


@given(st.lists(st.sampled_from([*PIECES, "\n" * 3]), min_size=200, max_size=400).map("".join), st.booleans())
def test_cut_text_keeps_whole_entities(text, coded):
    inside = "\n".join(map(mrkdwn.code, text.splitlines())) if coded else mrkdwn.quoted(text, 9_000)
    for most in (300, 1_000, 4_000):
        shown = mrkdwn.cut(f"*Bold*: {inside}\n{mrkdwn.block(text)}\n{inside}", most)
        assert len(shown) <= most
        assert not re.search(r"&(?!amp;|lt;|gt;)", safe(shown))


def test_cut_after_a_code_block_adds_no_backtick():
    text = f"{'x' * 230}\n{mrkdwn.block('a log')}\n{mrkdwn.code('y' * 100)}"
    assert mrkdwn.cut(text, 300).endswith("\na log\n```\n…")
