"""What the message of an elastic Deployment says."""

from dataclasses import replace

import pytest

from bot.core.finding import Finding
from bot.workspaces.elastic.message import ElasticView, message
from bot.workspaces.elastic.records import ElasticRecord, Reason
from bot.workspaces.elastic.scaler import seen
from bot.workspaces.elastic.supply import Supply
from tests.bot.factories import NOW
from tests.bot.workspaces.elastic.factories import LLM, deployment_of, pods_of
from tests.bot.workspaces.elastic.test_supply import waiting

SUPPLY = Supply(running=3, ready=3, free=0, coming=0)


def shown(record=None, view=None, **supply):
    view = view or ElasticView(replicas=3, supply=replace(SUPPLY, **supply))
    return message(LLM, record or ElasticRecord(replicas=3), view).blocks[0]["text"]["text"]


@pytest.mark.parametrize(
    ("supply", "text"),
    [
        ({}, ":runner: *`llm` in `serving`*: 3 of max 6 replicas run"),
        ({"ready": 1}, "1 of max 6 replicas runs, 2 starting"),
        ({"running": 2, "ready": 2}, "2 of max 6 replicas run, 1 waiting for GPUs"),
        ({"ready": 0}, ":hourglass_flowing_sand: *`llm` in `serving`*: 0 of max 6 replicas run"),
    ],
)
def test_message_counts_ready_starting_and_waiting_replicas(supply, text):
    assert text in shown(**supply)


@pytest.mark.parametrize(
    ("reason", "before", "text"),
    [
        (Reason.FREE, 2, "Raised from 2 to 3"),
        (Reason.GIVEN, 5, "GPUs given to `a`, `b`, `c`, and 1 more."),
        (Reason.RESERVE, 4, "others have the GPUs"),
        (Reason.LIMITS, 0, "below `min`"),
        (Reason.LIMITS, 9, "above `max`"),
    ],
)
def test_message_names_the_last_change_and_its_reason(reason, before, text):
    change = {"changed_at": NOW, "changed_from": before, "reason": reason, "given": tuple("abcd")}
    assert text in shown(ElasticRecord(replicas=3, **change))


def test_message_of_a_reserve_that_others_took_says_so():
    record = ElasticRecord(replicas=3, changed_at=NOW, changed_from=4, reason=Reason.RESERVE)
    keeping = replace(LLM, reserve=1)
    view = ElasticView(replicas=3, supply=SUPPLY)
    assert "less was free than the reserve" in message(keeping, record, view).blocks[0]["text"]["text"]


def test_message_names_who_gets_gpus():
    pods = pods_of(waiting("one"), waiting("two"))
    assert "The scheduler is giving GPUs to `sweeps/one`." in shown(nominated=(pods[0],))
    assert "`sweeps/one` and `sweeps/two` wait for GPUs of these replicas." in shown(pressing=tuple(pods))


def test_message_of_a_hostile_field_manager_is_plain():
    fields = {"fieldsV1": {"f:spec": {"f:replicas": {}}}}
    other = {"manager": "kubectl", "time": "2026-11-22T20:00:00Z"}
    found = deployment_of(replicas=9)
    found["metadata"]["managedFields"] = [
        other | fields,
        {"manager": "`<!channel>` *x*", "time": "2026-11-22T20:01:00Z"} | fields,
        {"manager": "kube-controller-manager", "time": "2026-11-22T20:02:00Z", "fieldsV1": {"f:status": {}}},
    ]
    record = replace(ElasticRecord(replicas=3), **seen(ElasticRecord(replicas=3), 9, found))
    text = shown(record)
    assert "scaling is paused" in text
    assert "`ˋ&lt;!channel&gt;ˋ *x*` changed the number of replicas from 3 to 9" in text
    broken = ElasticView(replicas=9, problem=Finding("It has no `priorityClassName`.", "Set one."))
    views = ElasticView(replicas=9), broken
    assert ["Resume scaling" in str(message(LLM, record, view).blocks) for view in views] == [True, False]
