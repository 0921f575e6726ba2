"""Sweeps by the HTTP API: start, list, show, and change them, as the person whose token it is."""

import asyncio
import json
from dataclasses import replace

import pytest
from redis.exceptions import RedisError

from bot.core.commands import Action, AuditEntry
from bot.core.events import Progress, Result
from bot.core.record import Phase
from bot.core.request import Requester
from bot.sweep.questions.job import _trials
from bot.sweep.questions.store import Answer
from bot.text.masking import Mask
from handlers.home_tab import showing
from tests.bot.factories import ADMIN, OWNER, a_sweep
from tests.bot.sweep.results.factories import a_result, some_results

OWN = Requester(user="U1", user_name="ada", channel="C1")


async def stored(context, *phases, **changes):
    """Store a sweep of U1 in each phase; return the last one."""
    for n, phase in enumerate(phases):
        sweep = a_sweep(
            phase, id=f"lr-brave-otter{n or ''}", request_id=f"r{n}", **{"requester": OWN} | changes
        )
        await context.store.create(sweep, [sweep.id], sweep.request_id)
    return sweep


async def test_launch_repeated_with_its_key_is_the_same_sweep(call, context):
    status, first = await call("POST", "/sweeps", "branch=main space=lr", key="one")
    assert (status, first["state"]) == (202, "received")
    repeated = await asyncio.gather(
        *(call("POST", "/sweeps", "branch=main space=lr", key="one") for _ in range(5))
    )
    assert repeated == [(202, first)] * 5
    _, other = await call("POST", "/sweeps", "branch=main space=lr", key="two")
    assert await context.store.active() == {first["id"], other["id"]}
    requester = (await context.store.get(first["id"])).requester
    assert (requester.user, requester.channel, requester.via) == ("U1", "C1", "API")
    assert (await context.queue.get(wait=0)).item.key == first["id"]


async def test_launch_survives_redis_without_data(call, context, redis):
    """As one that was acknowledged to Slack."""
    _, sweep = await call("POST", "/sweeps", "branch=main space=lr", key="one")
    await redis.flushall()
    await context.unconfirmed.restore_lost()
    assert (await context.store.get(sweep["id"])).request.space == "lr"


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("branch=main", "Missing `space=`."),
        ("branch=main space=lr gpus=x", "gpus= must be"),
        ("cancel lr-brave-otter", "This isn't a sweep to start."),
        ("cmd='", "Unclosed quote."),
        ("x" * 60_000, "at most 8,000 characters"),
    ],
)
async def test_launch_that_cannot_be_read_is_refused_with_slacks_sentence(call, context, command, sentence):
    status, problem = await call("POST", "/sweeps", command, key="one")
    assert (status, sentence in problem["detail"]) == (422, True), problem
    assert not await context.store.active()


async def test_launch_without_permission_is_refused(call, context, monkeypatch):
    monkeypatch.setattr("handlers.launch_form.launch_denial", lambda *_: "You don't have permission.")
    status, problem = await call("POST", "/sweeps", "branch=main space=lr", key="one")
    assert (status, problem["detail"]) == (403, "You don't have permission.")


@pytest.mark.parametrize("key", ["", "k" * 201, "tab\there"])
async def test_launch_needs_a_valid_idempotency_key(call, context, key):
    status, problem = await call("POST", "/sweeps", "branch=main space=lr", key=key)
    assert (status, "Idempotency-Key" in problem["detail"]) == (422, True)
    assert not await context.store.active()


async def test_list_goes_on_where_a_page_ended(call, context):
    await stored(context, Phase.RUNNING, Phase.SUCCEEDED, Phase.BUILDING)
    found, cursor = [], ""
    for _ in range(2):
        status, page = await call("GET", "/sweeps", limit="2", cursor=cursor)
        found += [each["id"] for each in page["sweeps"]]
        cursor = page["next"]
        await context.store.save(await context.store.get("lr-brave-otter"))  # was the next one
    assert (status, cursor) == (200, None)
    assert found == ["lr-brave-otter2", "lr-brave-otter1", "lr-brave-otter"]
    _, page = await call("GET", "/sweeps", active="true")
    assert {each["state"] for each in page["sweeps"]} == {"running", "building"}


@pytest.mark.parametrize(
    "options", [{"limit": "0"}, {"limit": "²"}, {"cursor": "lr-brave-otter"}, {"active": "1"}, {"a": "b"}]
)
async def test_list_with_invalid_options_is_refused(call, options):
    assert (await call("GET", "/sweeps", **options))[0] == 422


async def test_sweep_is_shown_with_what_its_record_holds(call, context):
    sweep = await stored(context, Phase.RUNNING, permalink="https://slack/p1", submitted=True)
    status, found = await call("GET", f"/sweeps/{sweep.id}")
    assert (status, found["state"], found["thread"], found["ended"]) == (
        200,
        "running",
        "https://slack/p1",
        None,
    )
    assert found["trials"] == {"total": 4, "done": 0, "failed": 0, "running": 0}
    for unknown in ("lr-no-such", "..", "%2e%2e%2fsweeps", "L" * 500):
        assert (await call("GET", f"/sweeps/{unknown}"))[0] == 404


async def test_command_reaches_the_sweep_once(call, context):
    sweep = await stored(context, Phase.RUNNING)
    for _ in range(2):
        answer = await call("POST", f"/sweeps/{sweep.id}/commands", "cancel", key="stop")
        assert answer == (202, {"id": sweep.id, "accepted": True})
    [command] = await context.store.commands(sweep.id)
    assert (command.action, command.user, command.via, command.in_thread) == (
        Action.CANCEL,
        "U1",
        "API",
        True,
    )


async def test_command_of_a_stranger_is_refused_with_slacks_sentence(call, context, caplog):
    sweep = await stored(
        context, Phase.RUNNING, requester=Requester(user=OWNER, user_name="bo", channel="C1")
    )
    with caplog.at_level("INFO", "sweepbot.audit"):
        status, problem = await call("POST", f"/sweeps/{sweep.id}/commands", "cancel", key="stop")
    assert (status, problem["detail"]) == (
        403,
        "Only bo (owner) or an admin can cancel `lr-brave-otter`.",
    )
    assert not await context.store.commands(sweep.id)
    assert "user=U1 via=API action=cancel sweep=lr-brave-otter: denied" in caplog.text


@pytest.mark.parametrize(
    "command", ["logs", "list", "branch=main space=lr", "rerun", "queue", "cancel seven", ""]
)
async def test_command_that_changes_nothing_is_refused(call, context, command):
    sweep = await stored(context, Phase.RUNNING)
    status, problem = await call("POST", f"/sweeps/{sweep.id}/commands", command, key="k")
    assert status == 422
    if command == "logs":
        assert "Available: `cancel`, `drain`, `extend`, " in problem["detail"]
    assert not await context.store.commands(sweep.id)


@pytest.fixture
def worker(context, questions):
    """`worker(answer, ...)`: answers the next questions with these; returns them once they were asked."""

    def start(*answers):
        async def work():
            asked = []
            for status, body in answers:
                lease = await context.queue.get(wait=60)
                asked.append(await questions.get(lease.item.key))
                await questions.put(lease.item.key, Answer(status=status, body=body))
                await context.queue.done(lease)
            return asked

        return asyncio.create_task(work())

    return start


async def test_results_come_from_a_worker(call, context, worker, api, token):
    sweep = await stored(context, Phase.SUCCEEDED)
    working = worker(
        (200, _trials(some_results(a_result("t1", 0.5), a_result("t2", 0.1)), Mask())), (200, b"trial")
    )
    status, found = await call("GET", f"/sweeps/{sweep.id}/results")
    assert (status, [(each["value"], each["state"]) for each in found["trials"]]) == (
        200,
        [(0.1, "done"), (0.5, "done")],
    )
    headers = {"Authorization": f"Bearer {token}"}
    async with api.get(f"/api/v1/sweeps/{sweep.id}/results?format=csv", headers=headers) as sheet:
        assert (sheet.content_type, await sheet.text()) == ("text/csv", "trial")
    assert [(each.about, each.subject, each.detail) for each in await working] == [
        ("results", sweep.id, "json"),
        ("results", sweep.id, "csv"),
    ]


async def test_question_of_several_callers_is_asked_once(call, context, worker):
    sweep = await stored(context, Phase.RUNNING)
    working = worker((200, b'{"log": "x"}'))
    answers = await asyncio.gather(*(call("GET", f"/sweeps/{sweep.id}/logs", trial="K3X") for _ in range(4)))
    assert answers == [(200, {"log": "x"})] * 4
    assert [(each.about, each.detail) for each in await working] == [("logs", "k3x")]


async def test_refusal_of_a_worker_is_a_problem(call, context, worker):
    worker((422, b"`x` matches no trial."), (403, b"Too many GPUs."), (503, b"No cluster."), (404, b"None."))
    sweep = await stored(context, Phase.RUNNING)
    answers = [
        await call("GET", f"/sweeps/{sweep.id}/logs", trial="x"),
        await call("POST", "/plans", "branch=main space=lr"),
        await call("GET", "/history", space="lr"),
        await call("GET", "/sweeps/lr-no-such/results"),
    ]
    assert [(status, problem["detail"]) for status, problem in answers] == [
        (422, "`x` matches no trial."),
        (403, "Too many GPUs."),
        (503, "No cluster."),
        (404, "None."),
    ]


async def test_plan_is_asked_for_its_person_and_needs_what_a_launch_needs(call, worker, monkeypatch):
    working = worker((200, b"{}"))
    assert (await call("POST", "/plans", "branch=main space=lr"))[0] == 200
    [asked] = await working
    assert (asked.about, asked.subject) == ("plan", "branch=main space=lr")
    assert (asked.requester.user, asked.requester.channel) == ("U1", "C1")
    assert (await call("POST", "/plans", "branch=main"))[0] == 422
    monkeypatch.setattr("handlers.launch_form.launch_denial", lambda *_: "You don't have permission.")
    assert (await call("POST", "/plans", "branch=main space=lr"))[0] == 403


async def test_space_is_checked_with_the_configurations_limits(call, api, token):
    async def check(space, options=""):
        headers = {"Authorization": f"Bearer {token}"}
        body = {"space": space, "options": options}
        async with api.post("/api/v1/spaces/check", headers=headers, json=body) as found:
            return found.status, await found.json(content_type=None)

    text = "command: train\nobjective: {metric: loss, goal: minimize}\nparameters: {lr: {min: 0, max: 1}}\n"
    status, found = await check(text, "trials=3")
    assert (status, found["valid"], found["errors"]) == (200, True, [])
    assert "lr" in found["summary"]
    _, found = await check(text.replace("lr:", "lr: {min: x},\n  width:").replace("metric", "metrik"))
    assert (found["valid"], len(found["errors"]) > 1) == (False, True)
    assert all(each.startswith("space.yaml:") for each in found["errors"])
    masked = 'trials= must be a whole number from 1 to 500; got "https://***@data.example".'
    secret = "trials=https://ada:hunter2secret@data.example"
    assert (await check(text, secret))[1]["errors"] == [masked]
    status, problem = await call("POST", "/plans", f"branch=main space=lr {secret}")
    assert (status, problem["detail"]) == (422, masked)


@pytest.mark.parametrize("names", ["lr-a-b", "lr-a-b,", "lr-a-b,lr-a-b", ",".join("abcdefg"), "../x,lr-a-b"])
async def test_comparison_needs_two_to_six_names(call, names):
    assert (await call("GET", "/comparison", sweeps=names))[0] == 422


async def test_call_waits_for_the_sweeps_end(call, context, api):
    sweep = await stored(context, Phase.RUNNING)
    waiting = asyncio.create_task(call("GET", f"/sweeps/{sweep.id}", wait="30"))
    assert (await call("GET", f"/sweeps/{sweep.id}", wait="0"))[1]["state"] == "running"
    await context.store.save(replace(sweep, phase=Phase.SUCCEEDED))
    assert (await waiting)[1]["state"] == "succeeded"
    assert (await call("GET", f"/sweeps/{sweep.id}", wait="31"))[0] == 422


async def test_reused_key_with_another_command_is_refused(call, context, redis):
    _, first = await call("POST", "/sweeps", "branch=main space=lr", key="one")
    status, problem = await call("POST", "/sweeps", "branch=main space=other", key="one")
    assert (status, problem["detail"].startswith("This Idempotency-Key was used")) == (422, True)
    assert await call("POST", "/sweeps", "branch=main space=lr", key="one") == (202, first)
    path = f"/sweeps/{first['id']}/commands"
    assert [(await call("POST", path, each, key="one"))[0] for each in ("drain", "cancel", "drain")] == [
        202,
        422,
        202,
    ]
    assert await context.store.active() == {first["id"]}


async def test_key_of_a_call_that_was_refused_is_still_free(call):
    assert (await call("POST", "/sweeps", "branch=main", key="one"))[0] == 422
    assert (await call("POST", "/sweeps", "branch=main space=lr", key="one"))[0] == 202


async def test_renamed_sweep_is_shown_and_followed_under_its_new_name(call, context, worker):
    await stored(context, Phase.REFUSED, reason="renamed to lr-calm-fox")
    new = a_sweep(Phase.BUILDING, id="lr-calm-fox", request_id="new", requester=OWN)
    await context.store.create(new, [new.id], new.request_id)
    working = worker((200, b"{}"))
    status, shown = await call("GET", "/sweeps/lr-brave-otter")
    assert (status, shown["id"], shown["state"]) == (200, "lr-calm-fox", "building")
    assert (await call("GET", "/sweeps/lr-brave-otter/results"))[0] == 200
    assert (await working)[0].subject == new.id
    assert (await call("POST", "/sweeps/lr-brave-otter/commands", "cancel", key="k"))[1]["id"] == new.id
    status, found = await call("GET", "/sweeps/")
    assert (status, "*Fix:* Check the URL" in found["detail"]) == (404, True), "not redirected"


async def test_results_without_a_worker_are_unavailable(call, context, monkeypatch):
    monkeypatch.setattr("handlers.api.app.WORKER_TIMEOUT", 0.1)
    sweep = await stored(context, Phase.RUNNING)
    assert (await call("GET", f"/sweeps/{sweep.id}/results"))[0] == 503


async def test_calls_while_redis_is_down_can_be_repeated(call, context, monkeypatch):
    async def down(*_, **__):
        raise RedisError("connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(context.store, "create", down)
        status, problem = await call("POST", "/sweeps", "branch=main space=lr", key="one")
    assert (status, "can't reach its queue (Redis)" in problem["detail"]) == (503, True)
    assert (await call("POST", "/sweeps", "branch=main space=lr", key="one"))[0] == 202


async def test_admin_can_change_the_sweeps_of_others(call, context, typed):
    sweep = await stored(context, Phase.RUNNING)
    theirs = (await typed("token", user_id=ADMIN)).split("`")[1]
    assert (await call("POST", f"/sweeps/{sweep.id}/commands", "drain", key="k", by=theirs))[0] == 202


async def test_secrets_of_trials_are_masked_wherever_this_process_shows_a_sweep(
    call, context, typed, api, token
):
    """A worker masks what it posts, and Slack's acknowledgments and the API aren't posted by one."""
    login, shown = "https://ada:hunter2secret@data.example", []

    class Web:
        async def views_publish(self, **view):
            shown.append(json.dumps(view))

    best = Result(trial="t", value=0.5, parameters={"data": f"{login}/mnist"})
    refused = {"about": f"see {login}", "refused": f"<@{OWNER}> has already"}
    entry = AuditEntry(at=context.now(), user=OWNER, name="bo", action=Action.DECLINE, **refused)
    sweep = await stored(
        context, Phase.SUCCEEDED, submitted=True, progress=Progress(best=best), audit_log=(entry,)
    )
    shown.append(await typed(f"status {sweep.id}"))
    await showing(context)(Web(), "U1")
    shown.append(json.dumps((await call("GET", f"/sweeps/{sweep.id}"))[1]))
    assert '"denied": "bo has already"' in shown[-1], "a name, as Slack shows a mention"
    path, headers = f"/api/v1/sweeps/{sweep.id}/events", {"Authorization": f"Bearer {token}"}
    async with api.get(path, headers=headers) as stream:
        shown.append(await stream.text())
    assert [("hunter2" in each, "https://***@data.example" in each) for each in shown] == [(False, True)] * 4
