"""Answers of a worker to questions of the HTTP API, refusals included."""

import json
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest

from bot.core.record import Phase
from bot.core.request import Requester
from bot.platform.storage.sweeps import Store
from bot.platform.storage.work_queue import Queue
from bot.sweep.answers.sweep_log import SweepLog
from bot.sweep.form.review import Review
from bot.sweep.model.observation import Observation
from bot.sweep.questions.job import answer
from bot.sweep.questions.store import About, Answer, Question, Questions
from bot.text.masking import Mask
from k8s.api.errors import UnreachableError
from tests.bot.factories import CONFIG, PLAN, a_sweep
from tests.bot.sweep.results.factories import a_result, some_results


class Kept:
    """The stored results of ended sweeps."""

    def __init__(self):
        self.results, self.error = {}, None

    async def get(self, sweep_id):
        if self.error:
            raise self.error
        return self.results.get(sweep_id)

    async def of_space(self, _space):
        for each in self.results.values():
            yield each


@pytest.fixture
def kept():
    return Kept()


@pytest.fixture
def ask(redis, kept):
    """`await ask(About.RESULTS, "lr-brave-otter")`: the status and the text."""
    queue = Queue(redis)
    questions = Questions(redis, queue)
    clients = SimpleNamespace(
        store=Store(redis), kept_results=kept, mask=Mask(["hunter2hunter2"]), config=CONFIG
    )

    async def asked(about, subject, detail=""):
        person = Requester(user="U1", user_name="ada", channel="C1")
        question = Question(about=about, subject=subject, detail=detail, requester=person)
        await questions.ask(question)
        await answer((await queue.get(wait=1)).item.key, clients, questions, known=None)
        found = await questions.answer(question.id)
        return found.status, found.body.decode()

    asked.questions, asked.clients, asked.store = questions, clients, clients.store
    return asked


async def test_results_outlive_the_sweeps_record(ask, kept):
    kept.results["lr-brave-otter"] = some_results(a_result("t1", 0.5), a_result("t2", 0.1))
    status, text = await ask(About.RESULTS, "lr-brave-otter", "json")
    assert (status, [each["value"] for each in json.loads(text)["trials"]]) == (200, [0.1, 0.5])
    status, text = await ask(About.RESULTS, "lr-brave-otter", "csv")
    assert (status, text.startswith("trial,state,val_loss")) == (200, True)


async def test_sweep_without_trials_has_none_and_an_unknown_one_is_not_found(ask):
    sweep = a_sweep(Phase.BUILDING)
    await ask.store.create(sweep, [sweep.id], sweep.request_id)
    assert await ask(About.RESULTS, sweep.id, "json") == (200, '{"trials":[]}')
    assert await ask(About.RESULTS, sweep.id, "csv") == (200, "")
    for about in (About.RESULTS, About.LOGS):
        assert (await ask(about, "lr-no-such"))[0] == 404


async def test_outage_is_answered_at_once_and_masked(ask, kept):
    kept.error = UnreachableError("https://hunter2hunter2@10.0.0.1 doesn't answer")
    status, text = await ask(About.RESULTS, "lr-brave-otter")
    assert (status, "hunter2" in text, "Try again in a minute" in text) == (503, False, True)


async def test_answers_have_no_secrets(ask, kept):
    secret = a_result("t1", 0.5, parameters={"optimizer": "https://ada:hunter2hunter2@host", "lr": "1e-05"})
    kept.results = {
        name: replace(some_results(secret), sweep=name, subject="hunter2hunter2")
        for name in ("lr-a-b", "lr-c-d")
    }
    answers = [await ask(About.RESULTS, "lr-a-b", each) for each in ("json", "csv")]
    answers.append(await ask(About.COMPARISON, "lr-a-b lr-c-d"))
    for status, text in answers:
        assert (status, "hunter2" in text, "://***@host" in text, "1e-05" in text) == (
            200,
            False,
            True,
            True,
        ), text


async def test_commit_subject_has_no_secrets(ask, kept, monkeypatch):
    async def made(*_):
        return Review(
            plan=replace(PLAN, subject="hunter2hunter2"), config=CONFIG, free=None, refusal="", over=""
        )

    monkeypatch.setattr("bot.sweep.questions.job.review", made)
    kept.results = {"one": replace(some_results(a_result("t1", 0.5)), subject="hunter2hunter2")}
    for about, subject in ((About.PLAN, "branch=main space=lr"), (About.HISTORY, "lr")):
        status, text = await ask(about, subject)
        assert (status, "hunter2" in text) == (200, False)


async def test_plan_has_the_gpu_hours_of_all_trials_if_the_longest_is_known(ask, monkeypatch):
    async def made(*_):
        return Review(plan=plan, config=CONFIG, free=None, refusal="", over="")

    monkeypatch.setattr("bot.sweep.questions.job.review", made)
    found = []
    for command, hours in (("branch=main space=lr max_hours=0.5", 0.5), ("branch=main space=lr", None)):
        plan = replace(PLAN, gpus=2, space=replace(PLAN.space, max_trials=3, parallel=2, trial_hours=hours))
        status, text = await ask(About.PLAN, command)
        assert status == 200, text
        found.append([json.loads(text)[each] for each in ("trials", "peak_gpus", "gpu_hours")])
    assert found == [[3, 4, 3.0], [3, 4, None]]


@pytest.mark.parametrize(("line", "cause"), [("KeyError: 'x'", "KeyError: 'x'"), ("epoch 1", None)])
async def test_log_is_whole_and_has_the_cause_that_its_shown_part_names(ask, monkeypatch, line, cause):
    async def read(*_):
        return SweepLog(source="trial `t1`", shown=line, title="", whole=f"all\n{line}", file="")

    async def seen(*_):
        return Observation()

    monkeypatch.setattr("bot.sweep.questions.job.read_log", read)
    monkeypatch.setattr("bot.sweep.questions.job.observe", seen)
    ask.clients.of = lambda _: ask.clients
    sweep = a_sweep(Phase.RUNNING)
    await ask.store.create(sweep, [sweep.id], sweep.request_id)
    status, text = await ask(About.LOGS, sweep.id)
    assert (status, json.loads(text)) == (200, {"source": "trial t1", "cause": cause, "log": f"all\n{line}"})


async def test_error_of_the_person_is_their_sentence(ask):
    status, text = await ask(About.PLAN, "branch=main space=lr gpus=x")
    assert (status, text.startswith("gpus= must be")) == (422, True)
    status, text = await ask(About.COMPARISON, "lr-no-such lr-not-there")
    assert (status, "has no stored results" in text) == (422, True)


async def test_comparison_has_exact_values_and_what_slack_says(ask, kept):
    kept.results = {
        name: replace(some_results(a_result("t1", value)), sweep=name)
        for name, value in (("lr-a-b", 0.125), ("lr-c-d", 0.5))
    }
    status, text = await ask(About.COMPARISON, "lr-a-b lr-c-d")
    assert status == 200, text
    found = json.loads(text)
    assert [(each["id"], each["value"]) for each in found["sweeps"]] == [("lr-a-b", 0.125), ("lr-c-d", 0.5)]
    assert (found["comparable"], "Best: lr-a-b, 0.125" in found["text"]) == (True, True)


async def test_history_is_the_latest_first(ask, kept):
    older = some_results(a_result("t1", 0.5))
    newer = some_results(a_result("t1", 0.7), ended=older.ended + timedelta(hours=1))
    kept.results = {"one": older, "two": newer}
    status, text = await ask(About.HISTORY, "lr")
    found = json.loads(text)["sweeps"]
    assert (status, [each["value"] for each in found]) == (200, [0.7, 0.5])
    assert (found[0]["metric"], found[0]["goal"]) == (older.space.metric, older.space.goal)


async def test_answered_and_forgotten_questions_are_not_answered_again(ask, kept):
    question = Question(about=About.RESULTS, subject="lr-brave-otter")
    await answer(question.id, ask.clients, ask.questions, known=None)
    assert await ask.questions.answer(question.id) is None
    await ask.questions.ask(question)
    await ask.questions.put(question.id, Answer(status=200, body=b"first"))
    await answer(question.id, ask.clients, ask.questions, known=None)
    assert (await ask.questions.answer(question.id)).body == b"first"
