"""`sweepbot ci`: two sweeps for a pull request, the rule, and the comment that is edited."""

import argparse
import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bot.__main__ import main
from bot.core.errors import UserError
from bot.remote import ci_host
from bot.remote.ci import Verdict, code, pairs, report, run_ci, verdict
from bot.remote.ci_host import pull_request
from k8s.retry import Retry

TOKEN = f"swb_{'a' * 43}"
BASE = (1.0, 1.1, 0.9, 1.0, 1.05)


def trials(values):
    return [{"name": f"t{n}", "parameters": {"seed": str(n)}, "value": v} for n, v in enumerate(values)]


class Host(ThreadingHTTPServer):
    """Sweepbot's API, and the comments of GitHub and GitLab."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.launched, self.values = {}, {"main": BASE, "nets": BASE}
        self.states, self.goal = {}, "minimize"
        self.cancelled = set()  # branches whose first sweep was
        self.comments, self.foreign, self.denied, self.calls = {}, set(), False, []
        self.failing = []  # answers of the next calls about comments

    def sweep(self, name):
        branch = self.launched[name]
        return {
            "id": name,
            "state": "cancelled" if self._is_cancelled(name) else self.states.get(branch, "succeeded"),
            "branch": branch,
            "commit": "0123456789abcdef",
            "objective": {"metric": "val_loss", "goal": self.goal},
            "reason": "out of | `memory` @all" if branch in self.states else "5 trials done",
            "cause": None,
            "trials": {"total": 5, "done": 5, "failed": 0, "running": 0},
            "best": {"value": min(self.values[branch]), "parameters": {}},
            "thread": "https://lab.slack.com/1",
            "results_url": None,
            "ended": "2026-11-28T00:00:00",
        }

    def _is_cancelled(self, name):
        return not name.endswith("-2") and self.launched[name] in self.cancelled

    def answer(self, method, path, body):
        if path == "/api/v1/sweeps":
            branch = re.search(r"branch=(\S+)", body["command"])[1]
            name = f"lr-{branch}" + ("-2" if f"lr-{branch}" in self.launched else "")
            self.launched[name] = branch
            return 202, self.sweep(name) | {"state": "received"}
        if found := re.fullmatch(r"/api/v1/sweeps/([\w-]+)(/\w+)?", path):
            if found[2] == "/results":
                return 200, {"trials": trials(self.values[self.launched[found[1]]])}
            return 200, self.sweep(found[1])
        number = path.partition("?")[0].rpartition("/")[2]
        if self.failing and method != "GET":
            return self.failing.pop(0)
        if self.denied:
            return 403, {"message": "Resource not accessible by integration"}
        if method == "GET":
            return 200, [{"id": n, "body": text} for n, text in self.comments.items()]
        if method == "POST":
            self.comments[len(self.comments) + 1] = body["body"]
            return 201, {}
        if int(number) in self.foreign:
            return 403, {}
        self.comments[int(number)] = body["body"]
        return 200, {}


class _Handler(BaseHTTPRequestHandler):
    def _answer(self):
        size = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(size)) if size else None
        self.server.calls.append((self.command, self.path, dict(self.headers), body))
        status, found = self.server.answer(self.command, self.path, body)
        text, kind = json.dumps(found), "application/json"
        if self.path.endswith("/events"):
            kind = "text/event-stream"
            text = f"event: sweep\ndata: {json.dumps(self.server.sweep(self.path.split('/')[-2]))}\n\n"
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(text.encode())

    do_GET = do_POST = do_PATCH = do_PUT = _answer  # noqa: N815 - the names of the library

    def log_message(self, *_):
        """Print nothing."""


@pytest.fixture
def host(monkeypatch):
    made = Host()
    threading.Thread(target=made.serve_forever, args=(0.01,)).start()
    for name in ("GITHUB_ACTIONS", "CI_MERGE_REQUEST_IID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SWEEPBOT_URL", made.url)
    monkeypatch.setenv("SWEEPBOT_TOKEN", TOKEN)
    yield made
    made.shutdown()
    made.server_close()


def github(monkeypatch, tmp_path, url, *, fork=False):
    pull = {
        "number": 7,
        "head": {"ref": "nets", "repo": {"full_name": "eve/lab" if fork else "acme/lab"}},
        "base": {"ref": "main", "sha": "b" * 40},
    }
    (tmp_path / "event.json").write_text(json.dumps({"pull_request": pull}))
    for name, value in {
        "GITHUB_ACTIONS": "true",
        "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
        "GITHUB_REPOSITORY": "acme/lab",
        "GITHUB_API_URL": url,
        "GITHUB_RUN_ID": "5",
        "GITHUB_TOKEN": "ghs_secret123",
    }.items():
        monkeypatch.setenv(name, value)


def gitlab(monkeypatch, _, url, *, fork=False):
    for name, value in {
        "CI_MERGE_REQUEST_IID": "7",
        "CI_PROJECT_ID": "13" if fork else "12",
        "CI_MERGE_REQUEST_PROJECT_ID": "12",
        "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "13" if fork else "12",
        "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME": "nets",
        "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
        "CI_API_V4_URL": url,
        "CI_JOB_ID": "5",
        "GITLAB_TOKEN": "glpat-secret123",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=[github, gitlab])
def job(request, monkeypatch, tmp_path, host):
    request.param(monkeypatch, tmp_path, host.url)
    return request.param


def run(name="Sweep", max_worse=1.0):
    return run_ci(argparse.Namespace(request=["space=lr", "trials=5"], max_worse=max_worse, name=name))


def test_sweeps_of_branch_and_base_are_compared_and_the_comment_is_edited(host, job, capsys):
    assert run() == 0
    commands = [body["command"] for method, path, _, body in host.calls if path == "/api/v1/sweeps"]
    assert commands == ["gate=off space=lr trials=5 branch=nets", "gate=off space=lr trials=5 branch=main"]
    [text] = host.comments.values()
    assert text.startswith("<!-- sweepbot ci ")
    assert "### Sweep\n\n**Passed**: The same as `main` on average of 5 pairs" in text
    assert "- `nets` @ `01234567`: `lr-nets` succeeded, best 0.9 ([thread](https://lab.slack.com/1))" in text
    assert '    x-axis [1, 2, 3, 4, 5]\n    y-axis "val_loss"\n' in text
    assert "    bar [1, 1.1, 0.9, 1, 1.05]\n    line [1, 1.1, 0.9, 1, 1.05]" in text
    assert "| 3 | `seed=2` | 0.9 | 0.9 | +0.00% |" in text
    assert text.partition("\n")[2] in capsys.readouterr().out
    host.values["nets"] = tuple(1.05 * value for value in BASE)
    assert run() == 1
    [text] = host.comments.values()
    assert "**Worse**: 5.00% worse than `main`" in text
    assert "| 3 | `seed=2` | 0.9 | 0.945 | +5.00% |" in text
    for count in (20, 21):
        host.values = dict.fromkeys(host.values, tuple(1 + n / 100 for n in range(count)))
        assert run() == 0
        [text] = host.comments.values()
        assert ("\n… and 1 more" in text, "… and" in text) == (count > 20, count > 20)


def test_same_run_sends_the_same_keys_and_pull_requests_share_their_base(host, monkeypatch, tmp_path):
    def keys():
        return [head["Idempotency-Key"] for _, path, head, _ in host.calls if path == "/api/v1/sweeps"]

    github(monkeypatch, tmp_path, host.url)
    run(), run()
    monkeypatch.setenv("GITHUB_RUN_ATTEMPT", "2")
    run()
    new, base, *others = keys()
    assert others[:2] == [new, base]
    assert others[3] == base
    assert others[2] != new


def test_comment_of_another_title_and_of_a_stranger_stay(host, job):
    assert (run("Seeds"), run("Grid <img>: `2`")) == (0, 0)
    assert "### Grid img: 2\n" in host.comments[2]
    assert len(host.comments) == 2
    first = host.comments[1]
    host.comments = {1: first.replace("Passed", "Forged"), 2: host.comments[2]}
    host.foreign = {1}
    assert run("Seeds") == 0
    assert "Forged" in host.comments[1]
    assert "Passed" in host.comments[3]


def test_token_that_can_not_comment_changes_no_result(host, job, capsys):
    host.denied = True
    assert run() == 0
    said = capsys.readouterr().err
    assert "answers with status 403: Resource not accessible by integration. Fix: " in said
    assert "The comments can't be read: 127.0.0.1" in said
    assert "Fix: " in said
    assert "secret123" not in said


@pytest.mark.parametrize(
    "failure",
    [(403, {"message": "You have exceeded a secondary rate limit."}), (429, {}), (502, {})],
)
def test_comment_is_edited_once_its_host_answers_again(host, job, monkeypatch, failure):
    waits = []
    monkeypatch.setattr(ci_host.time, "sleep", waits.append)
    host.failing = [failure]
    assert run() == 0
    host.failing = [failure, failure]
    assert run() == 0
    assert len(host.comments) == 1
    assert [each >= 60 for each in waits] == [failure[0] != 502] * 3


def test_job_that_is_cancelled_while_its_comment_waits_ends_quietly(host, job, monkeypatch):
    def cancelled(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(ci_host.time, "sleep", cancelled)
    host.failing = [(502, {})]
    assert run() == 130


def test_comment_of_a_host_that_does_not_answer_is_given_up(host, job, monkeypatch, capsys):
    monkeypatch.setattr(ci_host, "RETRY", Retry(base=0, attempts=2))
    host.failing = [(502, {})] * 2
    assert run() == 0
    assert "The comment can't be written: 127.0.0.1:" in capsys.readouterr().err
    assert host.comments == {}


def test_result_is_that_of_the_sweeps_also_if_the_comments_are_another_answer(host, job, capsys):
    host.comments = {1: 5}
    assert run() == 0
    assert "The comments can't be read: the host's answer isn't a list" in capsys.readouterr().err


def test_failed_sweep_fails_the_job_with_its_reason(host, job):
    host.states["nets"] = "failed"
    assert run() == 1
    [text] = host.comments.values()
    assert "**Failed**: the sweep of `nets` ended as failed." in text
    assert "`out of ¦ 'memory' @all`" in text


def test_sweep_of_the_base_that_ended_badly_is_not_shared(host, monkeypatch, tmp_path):
    """Else it would fail all pull requests for a day, and no repeated job would help."""
    github(monkeypatch, tmp_path, host.url)
    host.cancelled = {"main"}
    assert run() == 0
    keys = [head["Idempotency-Key"] for _, path, head, _ in host.calls if path == "/api/v1/sweeps"]
    assert len({*keys}) == 3
    assert "Passed" in host.comments[1]


@pytest.mark.parametrize("of", [github, gitlab])
def test_fork_is_refused_before_anything_is_launched(host, monkeypatch, tmp_path, of):
    of(monkeypatch, tmp_path, host.url, fork=True)
    monkeypatch.delenv("SWEEPBOT_TOKEN")  # secrets aren't passed to it
    with pytest.raises(UserError, match="fork"):
        run()
    assert host.calls == []


def test_other_places_are_told_what_to_run(host):
    with pytest.raises(UserError, match="sweepbot launch --wait"):
        pull_request({})
    with pytest.raises(UserError, match="sweepbot launch --wait"):
        pull_request({"GITHUB_ACTIONS": "true"})


@pytest.mark.parametrize(
    ("new", "goal", "state"),
    [
        ((1.005, 1.104, 0.905, 1.004, 1.055), "minimize", "Passed"),
        ((1.2, 1.32, 1.08, 1.2, 1.26), "minimize", "Worse"),
        ((1.2, 1.32, 1.08, 1.2, 1.26), "maximize", "Passed"),
        ((1.2, 0.9, 1.0, 0.9, 1.1), "minimize", "Undecided"),
        ((1.0, 1.1), "minimize", "Undecided"),
    ],
)
def test_rule_needs_the_whole_interval(new, goal, state):
    decided = verdict(pairs(trials(BASE), trials(new)), goal, "main", 1.0)
    assert (decided.text.split("*")[2], decided.passed) == (state, state == "Passed")
    helps = state == "Undecided" and len(new) > 2
    assert ("More seeds or trials narrow the interval." in decided.text) is helps
    same = verdict(pairs(trials(BASE), trials(BASE)), goal, "main", 0.0)
    assert same.passed, "the same isn't worse"
    assert "The same as `main` on average of 5 pairs (95% interval +0.00% to +0.00%;" in same.text


@pytest.mark.parametrize("scale", [0.01, 100])
def test_rule_is_relative_to_the_mean(scale):
    new = (1.2, 0.9, 1.0, 0.9, 1.1)
    texts = {
        verdict(
            pairs(trials(x * each for x in BASE), trials(x * each for x in new)), "minimize", "main", 1.0
        ).text
        for each in (1, scale)
    }
    assert len(texts) == 1
    assert "0.99% worse than `main` on average of 5 pairs (95% interval -20.62% to +18.64%;" in texts.pop()


def test_picture_of_tiny_and_huge_values_has_no_exponents():
    sweep = {
        "id": "a",
        "state": "succeeded",
        "best": None,
        "thread": "",
        "commit": "",
        "branch": "b",
        "reason": "",
    }
    sweep["objective"] = {"metric": "loss"}
    found = [("lr=1", 1e-5, 2.5e-7), ("lr=2", 1234567.0, 1e20)]
    shown = report("t", sweep, sweep, Verdict(passed=True, text="", pairs=tuple(found)))
    assert "bar [0.00001, 1234570]\n    line [0.00000025, 100000000000000000000]" in shown


def test_pairs_are_trials_with_the_same_parameters_and_a_value():
    base = [*trials((1.0, 2.0, None)), {"parameters": {"seed": "10"}, "value": 5.0}]
    new = [*reversed(trials((4.0, None, 6.0))), {"parameters": {"seed": "10"}, "value": 7.0}]
    assert pairs(base, new) == (("seed=0", 1.0, 4.0), ("seed=10", 5.0, 7.0))
    diverged = pairs(trials((1.0, 1e308, 2.0)), trials((1.0, -1e308, -1.7e308)))
    assert verdict(diverged, "minimize", "main", 1).text.startswith("**Undecided**")
    fewer = verdict([("a", 1.0, 0.95)] * 3, "maximize", "main", 1).text
    assert fewer.startswith("**Worse**: 5.00% worse than `main` on average of 3 pairs")
    assert "mean of `main` is 0" in verdict([("a", 0.0, 1.0)] * 3, "minimize", "main", 1).text


@pytest.mark.parametrize("text", ["a`b|c\n@ada <img src=x>", "a\\|@ada", "", "x" * 500, "`" * 200])
def test_text_of_others_is_no_markup(text):
    shown = code(text)
    assert len(text) < 100 or len(shown) == 82
    assert shown.count("`") == 2
    assert len(shown) <= 82
    assert not {"|", "\n"} & set(shown)
    assert code("x" * 80) == f"`{'x' * 80}`"


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "1%"])
def test_max_worse_must_be_a_percentage(monkeypatch, capsys, text):
    monkeypatch.setattr(sys, "argv", ["sweepbot", "ci", "space=lr", f"--max-worse={text}"])
    with pytest.raises(SystemExit):
        main()
    assert f'--max-worse: must be a percentage from 0 up, such as 1; got "{text}"' in capsys.readouterr().err
