"""Failures of other systems, restored records, and quarantine: what is reported, where, and how often."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.events import Event
from bot.core.record import Outage, Phase, Shown, Unreachable
from bot.sweep.lifecycle.trouble import (
    quarantine,
    release,
    report_restored,
    report_trouble,
    report_unavailable,
    resolve_trouble,
    unreachable,
    unreachable_line,
)
from tests.bot.factories import NOW, OWNER, a_sweep
from tests.bot.sweep.model.observations import RUNNING, kinds


def test_quarantine_and_loss_are_reported_and_shown():
    text = (
        ":warning: Redis lost its data. `lr-brave-otter` continues from its record in the cluster, but "
        "recent commands and results may be missing. *Fix:* Repeat any command that got no answer."
    )
    assert report_restored(RUNNING).outbox == (Event(kind="restored", text=text),)
    assert report_restored(a_sweep(Phase.RECEIVED)).outbox[0].to_user == OWNER
    final = a_sweep(Phase.FAILED)
    assert report_restored(final) == final
    held = quarantine(replace(RUNNING, shown=Shown(fingerprint="x")), "it crashed")
    assert (held.quarantined, held.shown) == (True, Shown())
    [event] = held.outbox
    assert event.kind == "quarantined"
    assert event.text == (
        ":warning: <@UOWNER> Sweepbot stopped processing `lr-brave-otter`: several attempts in a row didn't "
        "finish. Running trials continue and keep their GPUs. *Fix:* Ask an admin to check the worker's log, "
        "then run `/sweep release lr-brave-otter`. *Cancel* still works. Last error:\n```\nit crashed\n```"
    )
    unbuilt = quarantine(a_sweep(Phase.BUILDING), "it crashed")
    assert "Running trials" not in unbuilt.outbox[0].text
    free = release(replace(held, outbox=()))
    text = ":white_check_mark: Sweepbot is processing `lr-brave-otter` again."
    assert (free.quarantined, free.outbox) == (False, (Event(kind="released", text=text),))


def test_trouble_is_reported_once_per_phase_and_its_end_where_it_was_reported():
    once = report_trouble(RUNNING, "no answer")
    text = ":warning: `lr-brave-otter` hit an error. Sweepbot keeps retrying:\n```\nno answer\n```"
    assert once.outbox == (Event(kind="trouble", text=text),)
    assert report_trouble(once, "still") == once
    assert len(report_trouble(replace(once, phase=Phase.STOPPING), "again").outbox) == 2
    final = a_sweep(Phase.FAILED)
    assert report_trouble(final, "no answer") == final
    once = replace(report_trouble(RUNNING, "no answer"), outbox=())
    kept = replace(once, sent_keys=("build_waiting/queued", *once.sent_keys))
    resolved = resolve_trouble(kept)
    over = Event(kind="trouble_over", text=":white_check_mark: Error resolved; the sweep continues.")
    assert (resolved.sent_keys, resolved.outbox) == (("build_waiting/queued",), (over,))
    stopping = resolve_trouble(replace(once, phase=Phase.STOPPING)).outbox[0]
    assert stopping.text == ":white_check_mark: Error resolved; stopping continues."
    ended = resolve_trouble(replace(once, phase=Phase.FAILED))
    assert (ended.sent_keys, ended.outbox) == ((), ())
    private = replace(report_trouble(a_sweep(Phase.RECEIVED), "no answer"), outbox=())
    assert (resolve_trouble(private).sent_keys, resolve_trouble(private).outbox) == ((), ())
    assert resolve_trouble(RUNNING) == RUNNING
    private = report_trouble(a_sweep(Phase.RECEIVED), "git does not answer")
    opened = replace(private, outbox=(), thread="1.0", phase=Phase.BUILDING)
    assert resolve_trouble(opened).outbox == ()
    both = resolve_trouble(replace(report_trouble(opened, "the registry does not answer"), outbox=()))
    assert kinds(both) == ["trouble_over"]
    assert (both.sent_keys, resolve_trouble(both)) == ((), both)
    once = unreachable(RUNNING, NOW, "")
    later = NOW + timedelta(minutes=5)
    assert once.unreachable == Unreachable(since=NOW)
    assert unreachable(once, later, "") == once
    assert unreachable(once, later, "the token expired").unreachable == Unreachable(
        since=NOW, reason="the token expired"
    )


def test_unavailable_registry_is_reported_once_and_shown_until_it_answers():
    once = report_unavailable(RUNNING, "The registry <x> doesn't answer.")
    text = ":warning: `lr-brave-otter` is waiting. The registry &lt;x&gt; doesn't answer."
    assert once.outbox == (Event(kind="trouble", text=text),)
    assert once.outage == Outage(what="The registry <x> doesn't answer.")
    assert report_unavailable(once, "It doesn't answer.") == once
    assert resolve_trouble(once).outage == Outage()


@pytest.mark.parametrize(("phase", "to"), [(Phase.RECEIVED, OWNER), (Phase.BUILDING, "")])
def test_report_trouble_goes_to_the_thread_or_to_the_owner_before_it_opens(phase, to):
    reported = report_trouble(a_sweep(phase), "the registry does not answer")
    assert [(e.kind, e.to_user) for e in reported.outbox] == [("trouble", to)]
    assert report_trouble(reported, "still") == reported


def test_line_says_since_when_a_cluster_has_not_answered_and_what_follows():
    away = unreachable(replace(RUNNING, cluster="west"), NOW, "no route")
    assert unreachable_line(away).endswith(": no route The sweep continues when the cluster answers again.")
    stopping = unreachable_line(replace(away, phase=Phase.STOPPING))
    assert stopping.endswith(" Remaining pods are stopped when the cluster answers again.")
    assert unreachable_line(RUNNING) == ""
