"""Failures of other systems, restored records, and quarantine: what is reported, where, and how often."""

from dataclasses import replace

import pytest

from bot.core.events import Event, EventKind
from bot.core.record import Phase
from bot.lifecycle.trouble import quarantine, release, report_restored, report_trouble, resolve_trouble
from tests.bot.factories import OWNER, a_sweep
from tests.bot.lifecycle.observations import RUNNING, kinds


def test_report_restored_only_to_active_sweeps():
    assert report_restored(RUNNING).outbox == (Event(kind=EventKind.RESTORED),)
    assert report_restored(a_sweep(Phase.RECEIVED)).outbox[0].to_user == OWNER
    final = a_sweep(Phase.FAILED)
    assert report_restored(final) == final


def test_quarantine_and_release_are_reported_and_shown():
    held = quarantine(replace(RUNNING, shown="x"), "it crashed")
    assert (held.quarantined, held.shown) == (True, "")
    assert held.outbox == (Event(kind=EventKind.QUARANTINED, detail="it crashed"),)
    free = release(replace(held, outbox=()))
    assert (free.quarantined, free.outbox) == (False, (Event(kind=EventKind.RELEASED),))


def test_trouble_is_reported_once_per_phase():
    once = report_trouble(RUNNING, "no answer")
    assert once.outbox == (Event(kind=EventKind.TROUBLE, detail="no answer"),)
    assert report_trouble(once, "still") == once
    assert len(report_trouble(replace(once, phase=Phase.STOPPING), "again").outbox) == 2
    final = a_sweep(Phase.FAILED)
    assert report_trouble(final, "no answer") == final


def test_resolved_trouble_is_reported_in_the_thread_only():
    once = replace(report_trouble(RUNNING, "no answer"), outbox=())
    kept = replace(once, sent_keys=("build_waiting/queued", *once.sent_keys))
    resolved = resolve_trouble(kept)
    assert (resolved.sent_keys, kinds(resolved)) == (("build_waiting/queued",), [EventKind.TROUBLE_OVER])
    ended = resolve_trouble(replace(once, phase=Phase.FAILED))
    assert (ended.sent_keys, ended.outbox) == ((), ())
    private = replace(report_trouble(a_sweep(Phase.RECEIVED), "no answer"), outbox=())
    assert (resolve_trouble(private).sent_keys, resolve_trouble(private).outbox) == ((), ())
    assert resolve_trouble(RUNNING) == RUNNING


@pytest.mark.parametrize(("phase", "to"), [(Phase.RECEIVED, OWNER), (Phase.BUILDING, "")])
def test_report_trouble_goes_to_the_thread_or_to_the_owner_before_it_opens(phase, to):
    reported = report_trouble(a_sweep(phase), "the registry does not answer")
    assert [(e.kind, e.to_user) for e in reported.outbox] == [(EventKind.TROUBLE, to)]
    assert report_trouble(reported, "still") == reported


def test_resolve_trouble_reports_only_where_the_trouble_was_reported():
    private = report_trouble(a_sweep(Phase.RECEIVED), "git does not answer")
    opened = replace(private, outbox=(), thread="1.0", phase=Phase.BUILDING)
    assert resolve_trouble(opened).outbox == ()
    both = resolve_trouble(replace(report_trouble(opened, "the registry does not answer"), outbox=()))
    assert kinds(both) == [EventKind.TROUBLE_OVER]
    assert (both.sent_keys, resolve_trouble(both)) == ((), both)
