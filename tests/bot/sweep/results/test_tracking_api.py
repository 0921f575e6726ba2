"""Reading MLflow's REST API: responses of its real server, and invalid ones."""

import contextlib
import json
import math
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from bot.core.curves import Point
from bot.sweep.results import tracking_api
from bot.sweep.results.experiments import tracking_client
from bot.sweep.results.tracking_api import AnswerTooSlowError, TrackingApi, TrackingError
from tests.bot.sweep.results.mlflow_client import entities, mlflow_client

NAME = "digits/lr-brave-otter"


class Experiment:
    """Runs as trials log them, with times a second apart."""

    def __init__(self, url, name):
        self.client = mlflow_client(url)
        self.number, self.time = self.client.create_experiment(name), 1_000

    def run(self, trial, values, *, steps=None, key="loss", **tags):
        self.time += 1_000
        named = {"mlflow.runName": trial} | {name.replace("_", "."): value for name, value in tags.items()}
        run = self.client.create_run(self.number, start_time=self.time, tags=named)
        points = zip(values, steps or range(len(values)), strict=True)
        self.client.log_batch(
            run.info.run_id, [entities().Metric(key, v, self.time + s, s) for v, s in points]
        )
        return run.info.run_id


@pytest.mark.slow
def test_curves_equal_those_of_the_real_server(mlflow_url):
    instance = Experiment(mlflow_url, NAME)
    instance.run("lr-brave-otter-aaa", [0.9, 0.5, 0.3])
    instance.run("lr-brave-otter-bbb", [0.8, math.nan, -math.inf], steps=[1, 5, 2**40])
    instance.run("lr-brave-otter-ccc", [3, 2, 1], steps=[0, 0, 0])
    instance.run("lr-brave-otter-ddd", [1.0], key="accuracy")
    instance.run("Notes of Ada", [7.0])
    api = TrackingApi(mlflow_url)
    runs = api.runs(NAME, "loss")
    assert {trial: run.latest.step for trial, run in runs.items()} == {
        "lr-brave-otter-aaa": 2,
        "lr-brave-otter-bbb": 2**40,
        "lr-brave-otter-ccc": 0,
    }
    curves = api.curves({run.id: trial for trial, run in runs.items()}, "loss")
    assert curves["lr-brave-otter-aaa"] == (Point(0, 0.9, 2.0), Point(1, 0.5, 2.001), Point(2, 0.3, 2.002))
    assert [(p.step, str(p.value)) for p in curves["lr-brave-otter-bbb"]] == [
        (1, "0.8"),
        (5, "nan"),
        (2**40, "-inf"),
    ]
    assert [(p.step, p.value) for p in curves["lr-brave-otter-ccc"]] == [(1, 1), (2, 2), (3, 3)]
    assert api.runs("digits/never-made", "loss") == {}


@pytest.mark.slow
def test_runs_of_one_trial_are_merged_as_by_the_real_server(mlflow_url):
    instance = Experiment(mlflow_url, "digits/several")
    first = instance.run("lr-brave-otter-aaa", [0.1, 0.1, 0.1])
    restarted = instance.run("any name", [0.9], sweepbot_trial="lr-brave-otter-aaa")
    instance.run("lr-brave-otter-aaa", [0.5, 0.5], mlflow_parentRunId=first)
    api = TrackingApi(mlflow_url)
    runs = api.runs("digits/several", "loss")
    assert {trial: run.id for trial, run in runs.items()} == {"lr-brave-otter-aaa": restarted}
    ended = api.runs("digits/several", "loss", since=tracking_api.CLOCK_SKEW + 4)
    assert ended == {}, "the nested run isn't read without its parent"


@pytest.mark.slow
def test_runs_are_read_in_pages_and_long_histories_sampled(mlflow_url, monkeypatch):
    monkeypatch.setattr(tracking_api, "PAGE_SIZE", 8)
    instance = Experiment(mlflow_url, "digits/many")
    for number in range(30):
        instance.run(f"lr-brave-otter-{number:03}", [float(number)])
    instance.run("lr-brave-otter-long", [1 / (step + 1) for step in range(900)])
    api = TrackingApi(mlflow_url)
    runs = api.runs("digits/many", "loss")
    assert len(runs) == 31
    assert len(api.runs("digits/many", "loss", since=tracking_api.CLOCK_SKEW + 11)) == 22, "of 2 s to 32 s"
    instance.client.rename_experiment(instance.number, "digits/renamed")
    assert len(api.runs("digits/many", "loss", f"http://ui/#/experiments/{instance.number}/runs")) == 31
    assert {
        len(curve) for curve in api.curves({run.id: trial for trial, run in runs.items()}, "loss").values()
    } == {1, 900}
    [sample] = api.curves({runs["lr-brave-otter-long"].id: "long"}, "loss", most=50).values()
    assert (len(sample), sample[0].step, sample[-1].step) == (50, 0, 899)


class Hostile(BaseHTTPRequestHandler):
    """Answers each path with what `answers` has for its end: a status and a body."""

    answers: ClassVar[dict] = {}
    asked: ClassVar[list] = []

    def do_GET(self):
        status, body = next(a for end, a in self.answers.items() if self.path.partition("?")[0].endswith(end))
        self.asked.append(self.path)
        body = body() if callable(body) else body
        self.send_response(status)
        if status == 307:
            self.send_header("Location", "/another-host/runs/search")
        with contextlib.suppress(OSError):  # a client that didn't wait
            self.end_headers()
            self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, *_):
        pass


@pytest.fixture
def hostile():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hostile)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))  # shutdown waits for a poll
    thread.start()

    def answering(**answers):
        known = {"get-by-name": (200, {"experiment": {"experiment_id": "1"}})}
        Hostile.answers = known | {name.replace("_", "-"): answer for name, answer in answers.items()}
        return TrackingApi(f"http://127.0.0.1:{server.server_port}")

    yield answering
    server.shutdown()
    thread.join()
    server.server_close()


def a_run(**changes):
    data = {
        "metrics": [{"key": "loss", "value": 1.0, "step": 3}],
        "tags": [{"key": "sweepbot.trial", "value": "t"}],
    }
    return {"info": {"run_id": "r", "start_time": 1}, "data": data | changes}


@pytest.mark.parametrize(
    "run",
    [
        None,
        {},
        {"info": [], "data": "x"},
        a_run(tags=[{"key": "sweepbot.trial", "value": "$\\frac"}]),
        a_run(tags=[{"key": "sweepbot.trial", "value": ["t"]}]),
        a_run(metrics=[{"key": "loss"}]),
        a_run(metrics=[{"key": "loss", "value": 1, "step": 10**30}]),
        a_run(metrics=[{"key": "loss", "value": {}, "step": 1}]),
        a_run(metrics="loss"),
    ],
)
def test_invalid_run_is_skipped(hostile, run):
    api = hostile(search=(200, {"runs": [run, a_run()]}))
    assert [each.latest.step for each in api.runs(NAME, "loss").values()] == [3]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((500, b"oops"), "HTTP 500"),
        ((403, {"error_code": "PERMISSION_DENIED"}), "HTTP 403"),
        ((404, b"<html>"), "runs/search with HTTP 404"),  # another path, or an older server
        ((200, b"<html>please log in</html>"), "JSON"),
        ((200, [1]), "HTTP 200"),
        ((200, b"[" * 100_000), "Recursion"),
        ((200, b" " * (tracking_api.MAX_ANSWER_SIZE + 1)), "larger than 8 MiB"),
    ],
)
def test_invalid_response_is_a_tracking_error(hostile, answer, why):
    with pytest.raises(TrackingError, match=why):
        hostile(search=answer).runs(NAME, "loss")


def test_redirect_is_not_followed(hostile):
    """It could lead to a host that only this process can reach."""
    api = hostile(search=(307, b""))
    Hostile.asked.clear()
    with pytest.raises(TrackingError, match="HTTP 307"):
        api.runs(NAME, "loss")
    with pytest.raises(Exception, match="307"):
        tracking_client(api._uri).search_runs(["1"])
    assert not [path for path in Hostile.asked if "another-host" in path]


def test_pages_that_are_too_slow_are_read_in_smaller_ones(hostile, monkeypatch):
    monkeypatch.setattr(tracking_api, "READ_TIMEOUT", 0.1)
    api = hostile(search=(200, lambda: time.sleep(0.3)))
    with pytest.raises(AnswerTooSlowError, match="Read timed out"):
        api.search(["1"], "", 1, "")
    sizes = []

    def search(_experiments, _where, size, _token, _order):
        sizes.append(size)
        if size > 25:
            raise AnswerTooSlowError
        return [a_run()], "more"

    monkeypatch.setattr(api, "search", search)
    assert len(api.runs(NAME, "loss")) == 1
    assert sizes == [250, 25, 25, 25, 25]


def test_pages_that_never_end_are_limited(hostile):
    api = hostile(search=(200, {"runs": [a_run()], "next_page_token": "more"}))
    assert len(api.runs(NAME, "loss")) == 1


def test_unreachable_server_is_a_tracking_error():
    with pytest.raises(TrackingError):
        TrackingApi("http://127.0.0.1:1").runs(NAME, "loss")
