"""What the command line does with a server that fails, lies, or is another one, over real HTTP."""

import json
import re
from io import BytesIO, TextIOWrapper
from pathlib import Path
from ssl import SSLCertVerificationError
from types import SimpleNamespace
from urllib.error import URLError

import pytest

from bot.__main__ import main
from bot.platform.runtime import log_format
from bot.remote import client
from bot.remote.answers import FORMS
from bot.remote.commands import COMMANDS
from k8s.retry import Retry

TOKEN = "swb_" + "a" * 43
SWEEP = {
    "id": "lr-brave-otter",
    "state": "running",
    "owner": "ada",
    "branch": "main",
    "commit": "c" * 40,
    "space": "lr",
    "reason": None,
    "cause": None,
    "trials": {"total": 4, "done": 1, "failed": 0, "running": 2},
    "best": {"value": 0.25, "parameters": {"lr": "0.01"}},
    "thread": None,
    "results_url": None,
    "started": "2026-11-28T01:00:00Z",
    "ended": None,
}


def problem(status, detail, **headers):
    return status, {"Content-Type": "application/problem+json"} | headers, json.dumps({"detail": detail})


def event(**changes):
    return f"event: sweep\ndata: {json.dumps(SWEEP | changes)}\n\n"


@pytest.fixture
def run(server, monkeypatch, capsys):
    """`run(*words)`: exit code, standard output, and standard error of a command, logged in to the server."""
    monkeypatch.setattr(log_format, "start", lambda *_: None)  # the tests' own logging stays
    monkeypatch.setattr(client, "RETRY", Retry(base=0, attempts=3))
    monkeypatch.setenv("SWEEPBOT_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("SWEEPBOT_TOKEN", TOKEN)

    def printed(*words):
        monkeypatch.setattr("sys.argv", ["sweepbot", *words])
        return main(), *capsys.readouterr()

    return printed


LAUNCH = ("launch", "branch=main", "space=lr")


def test_unanswered_launch_is_repeated_with_the_same_key(server, run):
    made = json.dumps({"id": "lr-brave-otter", "state": "received"})
    server.answers = [
        problem(500, "Redis doesn't respond."),
        (202, {"Content-Length": "999"}, "{"),
        (202, {}, made),
    ]
    code, out, err = run(*LAUNCH, "--json")
    assert (code, json.loads(out)["id"]) == (0, "lr-brave-otter")
    assert err == "Redis doesn't respond. Retrying.\n"
    keys = {headers["Idempotency-Key"] for _, _, headers in server.calls}
    assert (len(server.calls), len(keys)) == (3, 1)


def test_server_without_answer_is_exit_code_3_with_the_key(server, run):
    server.answers = [problem(503, "Redis doesn't respond.")]
    code, out, err = run(*LAUNCH, "--key", "run-7")
    assert (code, out, len(server.calls)) == (3, "", 3)
    assert err.splitlines()[1:] == [
        "The launch may have arrived. Repeat it with --key run-7: that is the same sweep.",
        "Redis doesn't respond.",
    ]
    assert server.calls[0][2]["Idempotency-Key"] == "run-7"


def test_refusal_is_printed_once_without_control_characters(server, run):
    server.answers = [problem(403, "*Fix:* ask `ada`\x1b]0;owned\x07\x9b2J\r\n")]
    code, out, err = run(*LAUNCH)
    assert (code, out, len(server.calls)) == (2, "", 1)
    assert err.startswith("Fix: ask ada")
    assert err.rstrip("\n").isprintable()


def test_unknown_certificate_authority_is_named_with_the_fix(run, monkeypatch):
    def refused(*_):
        raise URLError(SSLCertVerificationError(1, "certificate verify failed: self-signed certificate"))

    monkeypatch.setattr(client.Client, "_open", refused)
    code, _, err = run("list")
    assert (code, err.count("Fix: Set SSL_CERT_FILE to your certificate authority's file.")) == (3, 2)


def test_output_that_is_not_utf_8_has_escapes(server, run, monkeypatch):
    file = BytesIO()
    monkeypatch.setattr("sys.stdout", TextIOWrapper(file, encoding="cp1252"))
    server.answers = [(200, {}, json.dumps({"source": "trial t", "log": "Grüße █ 50%"}))]
    assert run("logs", "lr-brave-otter")[0] == 0
    assert file.getvalue().rstrip() == b"Gr\xfc\xdfe \\u2588 50%"


def test_redirect_does_not_get_the_token(server, run):
    server.answers = [(302, {"Location": "/elsewhere"}, ""), (200, {}, "{}")]
    code, _, err = run("status", "lr-brave-otter")
    assert (code, len(server.calls)) == (2, 1)
    assert "redirects to /elsewhere. Fix: Check the URL." in err


@pytest.mark.parametrize(
    "words",
    [
        *(["status", "x"], ["logs", "x"], ["list"], ["cancel", "x"], ["watch", "x"], ["results", "x"]),
        *(["results", "x", "--format", "json"], ["launch", "branch=main", "space=lr"]),
        *(
            ["launch", "--wait", "branch=main", "space=lr"],
            ["launch", "--dry-run", "branch=main", "space=lr"],
        ),
    ],
)
@pytest.mark.parametrize(
    ("kind", "page"),
    [
        *(("text/html", "<html>Log in</html>"), ("application/json", "[1]"), ("application/json", "null")),
        *(("application/json", '{"error": "x"}'), ("application/json", "[" * 10_000)),
    ],
)
def test_answer_of_another_server_is_named_so(server, run, words, kind, page):
    server.answers = [(200, {"Content-Type": kind}, page)]
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert re.search(r"(isn't Sweepbot's API|or of another version)\. Fix: Check the URL\.$", err.rstrip())


def test_status_says_why_the_latest_command_was_denied(server, run):
    given = [
        {"command": "extend", "about": "9 trials", "denied": "`lr-brave-otter` is\nstill running."},
        {"command": "pause", "about": None, "denied": None},
    ]
    shown = []
    for commands in (given[:1], given):
        server.answers = [(200, {}, json.dumps(SWEEP | {"commands": commands}))]
        shown += [line for line in run("status", "x")[1].splitlines() if "Denied" in line]
    assert shown == ["  Denied:  extend 9 trials: lr-brave-otter is still running."]


WRONG = [
    *((["status", "x"], SWEEP, name) for name in ("id", "trials", "best", "reason", "thread")),
    (["watch", "x"], SWEEP | {"ended": "now"}, "trials"),
    (["list"], {"sweeps": [SWEEP | {"best": 0.5}], "next": None}, "sweeps"),
    (["list"], {"sweeps": [SWEEP | {"best": 0.5}], "next": None}, "next"),
    (["logs", "x"], {"source": "trial t", "log": "x"}, "log"),
    (["cancel", "x"], {"id": "x"}, "id"),
    (["launch", "--dry-run", "branch=main", "space=lr"], {"branch": "main", "facts": []}, "facts"),
    (["results", "x", "--format", "json"], {"trials": []}, "trials"),
]


@pytest.mark.parametrize(("words", "answer", "name"), WRONG)
def test_answer_with_a_field_of_another_type_is_named_so(server, run, words, answer, name):
    data = "data: " * (words[0] == "watch")
    for wrong in (5, [5], [None], {"value": "x", "total": None}):
        server.answers = [(200, {}, f"{data}{json.dumps(answer | {name: wrong})}\n\n")]
        code, out, err = run(*words)
        assert (code, out, err[:30]) == (2, "", 'The answer has an unexpected "'), wrong
        assert err.rstrip().endswith("or of another version. Fix: Check the URL.")


def test_results_with_a_large_cell_are_printed(server, run):
    server.answers = [(200, {}, f"name,value\r\n{'x' * 200_000},1\r\n")]
    code, out, _ = run("results", "x", "--format", "csv")
    assert (code, len(out) > 200_000) == (0, True)


def test_forms_of_answers_agree_with_the_document():
    document = json.loads((Path(__file__).parents[3] / "docs/schemas/openapi.json").read_text())
    kinds = {int: "integer", str: "string", dict: "object", float: "number", type(None): "null"}

    def check(form, schema):
        schema = document["components"]["schemas"].get(schema.get("$ref", "").rpartition("/")[2], schema)
        if isinstance(form, list):
            check(form[0], schema["items"])
        elif isinstance(form, dict):
            for name in form:
                check(form[name], schema["properties"][name])
        else:
            several, any_of = form if isinstance(form, tuple) else (form,), schema.get("anyOf", [schema])
            assert {each.get("type", "object") for each in any_of} <= {
                "object" if isinstance(each, dict) else kinds[each] for each in several
            }

    for path, form in FORMS.items():
        calls = document["paths"]["/api/v1" + path.replace("ID", "{id}")].values()
        found = [each for call in calls for code, each in call["responses"].items() if code != "default"]
        schemas = [each["content"]["application/json"]["schema"] for each in found]
        names = [each["$ref"].rpartition("/")[2] for each in schemas]
        fields = {k: v for n in names for k, v in document["components"]["schemas"][n]["properties"].items()}
        check(form, {"properties": fields})


@pytest.mark.parametrize("page", ["<html>", '{"name": "another"}', "[]"])
def test_login_to_another_server_is_refused(server, run, monkeypatch, tmp_path, page):
    monkeypatch.setattr("bot.remote.credentials.FILE", tmp_path / "credentials.json")
    monkeypatch.setattr("sys.stdin", type("Pipe", (), {"isatty": lambda: False, "readline": lambda: TOKEN}))
    server.answers = [(200, {}, page)]
    code, _, err = run("login", f"http://127.0.0.1:{server.server_port}/")
    assert (code, list(tmp_path.iterdir())) == (2, [])
    assert "isn't Sweepbot's API" in err


def test_user_without_a_home_needs_a_login(run, monkeypatch):
    """As in a container with any user's number."""
    for name in ("HOME", "SWEEPBOT_URL", "SWEEPBOT_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    code, _, err = run("list")
    assert (code, err.partition(".")[0]) == (2, "You aren't logged in")


def test_list_has_the_sweeps_of_all_pages(server, run):
    summary = {key: SWEEP[key] for key in ("id", "state", "owner", "trials")} | {"best": 0.25}
    other = {**summary, "id": "wd-calm-eel", "state": "failed", "owner": "grace\x1b[2J", "best": None}
    pages = [{"sweeps": [summary], "next": "c/1\ud800"}, {"sweeps": [other], "next": None}]
    server.answers = [(200, {}, json.dumps(page)) for page in pages]
    code, out, err = run("list", "--active")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "lr-brave-otter  running  1 of 4 trials, 2 running, best 0.25  ada",
        "wd-calm-eel     failed   1 of 4 trials, 2 running             grace [2J",
    ]
    assert [path for _, path, _ in server.calls] == [
        "/api/v1/sweeps?limit=200&active=true",
        "/api/v1/sweeps?limit=200&active=true&cursor=c%2F1%3F",
    ]


@pytest.mark.parametrize("new", [False, True], ids=["the same", "a new one"])
def test_list_without_an_end_is_named_so(server, run, monkeypatch, new):
    monkeypatch.setattr(client, "MAX_PAGES", 5)
    server.answers = [(200, {}, json.dumps({"sweeps": [], "next": f"c{new and n}"})) for n in range(9)]
    code, out, err = run("list")
    assert (code, out, len(server.calls)) == (2, "", 5 if new else 2)
    assert err.startswith("The list of sweeps has no end: the server isn't Sweepbot's API")


def test_name_that_is_not_unicode_is_none_that_exists(server, run):
    server.answers = [problem(404, "No sweep has this name.")]
    assert run("status", "otter\udcff") == (2, "", "No sweep has this name.\n")
    assert server.calls[0][1] == "/api/v1/sweeps/otter%3F"


def test_document_lists_every_command():
    text = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text()
    assert set(re.findall(r"^\| `sweepbot ([a-z]+)", text, re.MULTILINE)) == {
        *COMMANDS,
        "ci",
        "mcp",
        "results",
    }


def test_watch_continues_when_the_connection_is_closed(server, run, monkeypatch):
    pauses = []
    monkeypatch.setattr(client, "time", SimpleNamespace(sleep=pauses.append))
    server.answers = [
        (200, {}, ": hello\n\n" + event() + event(state="stopping")[:40]),
        problem(503, "Redis doesn't answer.", **{"Retry-After": "7"}),
        (
            200,
            {},
            event() + event(state="succeeded\x1b[2J", trials={**SWEEP["trials"], "done": 4}, ended="now"),
        ),
    ]
    code, out, err = run("watch", "lr-brave-otter")
    assert [line.rstrip() for line in out.splitlines()] == [
        "lr-brave-otter: running, 1 of 4 trials, 2 running, best 0.25",
        "lr-brave-otter: succeeded [2J, 4 of 4 trials, 2 running, best 0.25",
        f"  Branch:  main @ {'c' * 40}",
        "  Best:    lr=0.01",
    ]
    assert (code, pauses) == (1, [0, 7])
    assert "closed the connection. Retrying." in err


def test_watch_looks_again_while_the_token_has_no_stream_left(server, run, monkeypatch):
    pauses = []
    monkeypatch.setattr(client, "time", SimpleNamespace(sleep=pauses.append))
    busy = problem(429, "Too many open event streams; a token can have 4.", **{"Retry-After": "0"})
    looks = [(200, {}, json.dumps(SWEEP | {"ended": None}))] * 7
    end = (200, {}, json.dumps(SWEEP | {"state": "succeeded", "ended": "now"}))
    server.answers = [each for look in (*looks, end) for each in (busy, look)]
    code, out, _ = run("watch", "lr-brave-otter")
    assert (code, out.splitlines()[1].split(",")[0]) == (0, "lr-brave-otter: succeeded")
    assert set(pauses) == {30.0}


@pytest.mark.parametrize(
    ("state", "expected"), [("succeeded", 0), ("failed", 1), ("cancelled", 1), ("refused", 1)]
)
def test_watch_ends_with_the_exit_code_of_the_sweep(server, run, state, expected):
    server.answers = [(200, {}, event() + event(state=state, ended="now"))]
    code, out, err = run("watch", "lr/../x?", "--json")
    assert (code, err) == (expected, "")
    assert [json.loads(line)["state"] for line in out.splitlines()] == ["running", state]
    assert server.calls[0][1] == "/api/v1/sweeps/lr%2F..%2Fx%3F/events"
