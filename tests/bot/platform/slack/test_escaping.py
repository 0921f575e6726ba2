"""No text of users or machines mentions anybody, links, breaks its message, or is rejected by Slack."""

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bot.core.commands import Action, AuditEntry
from bot.core.events import Progress, Result
from bot.core.finding import Finding
from bot.core.record import Phase
from bot.core.request import Requester
from bot.core.space import Parameter
from bot.core.sweep_summary import summary_of
from bot.platform.slack import mrkdwn
from bot.platform.slack.mrkdwn import finding_text
from bot.sweep.answers import messages
from bot.sweep.decisions.parent_message import Links, parent
from bot.sweep.lifecycle import texts, trouble
from bot.sweep.model.observation import Observation
from bot.sweep.results.collect import Sources, collect
from bot.watch.idle.alerts import update_alerts
from bot.watch.idle.detector import Kind
from bot.watch.idle.messages import warning
from k8s.engine import Trial, TrialState
from local.slack.validation import complaints, too_long, view_complaints
from tests.bot.factories import NOW, PLAN, REQUEST, a_sweep
from tests.bot.watch.idle.test_alerts import found

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
    return Trial(name=f"t-{draw(NASTY)}"[:60], state=state, parameters=values, value=value)


def safe(text):
    assert not re.search(r"[<>]", OURS.sub("", text)), text
    assert not mrkdwn.BIDI.search(text), text
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


@given(sweeps(), st.lists(trials(), max_size=5))
def test_external_text_in_the_parent_is_escaped(sweep, found):
    message = parent(sweep, Links(katib="https://k/x", mlflow="https://m/x"))
    shown(message.blocks)
    safe(mrkdwn.cut(message.text))
    assert len(mrkdwn.cut(message.text)) <= mrkdwn.MAX_MESSAGE
    safe(messages.status(sweep))
    safe(messages.listing([summary_of(sweep)] * 30))
    table = messages.results(sweep, collect(sweep, sweep.plan, Sources(trials=found)))
    shown(table.blocks)
    safe(table.text)
    view = messages.running_trials(sweep, Observation(trials=tuple(found)))
    assert view_complaints(view, "modal") == []


def escaped(text):
    """Check a message that can have several code blocks, one of which `text` itself can break."""
    for shown in (text, mrkdwn.cut(text)):  # SlackClient cuts what it sends
        assert not re.search(r"[<>]", OURS.sub("", shown)), shown
        assert not mrkdwn.BIDI.search(shown), shown
    assert len(mrkdwn.cut(text)) <= mrkdwn.MAX_MESSAGE


@given(sweeps(), NASTY, NASTY, st.sampled_from([Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED]))
def test_external_text_in_thread_messages_is_escaped(sweep, text, detail, ending):
    sweep = replace(sweep, cancelled_by="UGRACE", plan=replace(sweep.plan, cluster_reason=text, recipe=text))
    best = Result(trial=text, value=1.0, parameters={text or "p": detail})
    steps = (texts.build_started(sweep, text), texts.build_joined(text), texts.build_done(text))
    for step in (*steps, texts.submitted(sweep, sweep.plan)):
        escaped(step)
    for event in (
        texts.refused(sweep, text),
        *texts.notes(replace(sweep.plan, space=replace(sweep.plan.space, notes=(text,)))),
        texts.build_waiting(text, detail),
        texts.build_failed(sweep, text, detail),
        texts.submit_refused(text, detail),
        texts.trial_killed(sweep, text, "UGRACE"),
        texts.trial_killed(sweep, text, ""),
        texts.draining(sweep, "UOWNER"),
        texts.stopping(sweep),
        texts.ended(replace(sweep, progress=Progress(best=best)), ending, ""),
        *trouble.quarantine(sweep, detail).outbox,
        *trouble.report_trouble(sweep, detail).outbox,
        *trouble.report_unavailable(sweep, text).outbox,
    ):
        escaped(event.text)
        escaped(event.many)


def test_warning_escapes_user_texts():
    [alert] = update_alerts((), found(Kind.IDLE), {}, NOW)
    shown(warning(alert, {}, NOW).blocks)


def test_thousand_trials_fit_into_a_table_and_a_modal():
    space = replace(PLAN.space, parameters=tuple(Parameter(name=f"parameter_{n}") for n in range(30)))
    sweep = a_sweep(Phase.RUNNING, submitted=True, plan=replace(PLAN, space=space))
    values = {f"parameter_{n}": "0.0028079050224114393" for n in range(30)}
    many = [
        Trial(name=f"{sweep.id}-{n:04}", state=TrialState.LIVE, parameters=values, value=None)
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


def test_cut_keeps_whole_links():
    text = f"{mrkdwn.link('https://host/?a=1&b=2', 'label')} {'words ' * 30}"
    shown = {most: mrkdwn.cut(text, most) for most in range(20, 60)}
    assert {each.count("<") == each.count(">") for each in shown.values()} == {True}
    assert shown[59].startswith("<https://host/?a=1&b=2|label> words")


def test_cut_after_a_code_block_adds_no_backtick():
    text = f"{'x' * 230}\n{mrkdwn.block('a log')}\n{mrkdwn.code('y' * 100)}"
    assert mrkdwn.cut(text, 300).endswith("\na log\n```\n…")


def test_finding_has_its_fix_and_its_quoted_detail_on_lines_of_their_own_without_mentions():
    found = Finding("`x` changed <!channel>.", "Run `y > z`.", detail="first\n*second* <@U1>")
    assert finding_text(found) == (
        "`x` changed &lt;!channel&gt;.\n*Fix:* Run `y &gt; z`.\n> first ∗second∗ &lt;@U1&gt;"
    )
    assert finding_text(Finding("No fix.")) == "No fix."
    assert str(found) == "`x` changed <!channel>. *Fix:* Run `y > z`."
    assert str(Finding("No fix.")) == "No fix."
