"""The methods for notebooks are the API's operations, and make a DataFrame of results."""

import inspect
import json
import sys
from pathlib import Path

import pytest

from bot.core.errors import UserError
from bot.remote import client
from bot.remote.api import CLEAR, Sweepbot, connect, say
from k8s.retry import Retry
from tests.cases import cases

DOCUMENT = json.loads((Path(__file__).parents[3] / "docs/schemas/openapi.json").read_text())
OPERATIONS = {each["operationId"]: each for path in DOCUMENT["paths"].values() for each in path.values()}
SPELLED = {"id": "sweep", "Idempotency-Key": "key"}  # parameters that have another name in Python
TOKEN = "swb_" + "a" * 43


def parameters(operation):
    """Return the names of an operation's parameters, whether they are required, and those of its body."""
    found = {each["name"]: each.get("required", False) for each in operation.get("parameters", [])}
    if body := operation.get("requestBody"):
        name = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        schema = DOCUMENT["components"]["schemas"][name]
        found |= {key: key in schema.get("required", []) for key in schema["properties"]}
    return {SPELLED.get(name, name): required for name, required in found.items()}


@cases("name", OPERATIONS)
def test_method_has_the_parameters_of_its_operation(name):
    _, *found = inspect.signature(getattr(Sweepbot, name)).parameters.values()
    required = {each.name: each.default is inspect.Parameter.empty for each in found}
    assert required == parameters(OPERATIONS[name]) | ({"key": False} if "key" in required else {})


@pytest.fixture
def sweepbot(server, monkeypatch):
    monkeypatch.setattr(client, "RETRY", Retry(base=0, attempts=3))
    return connect(f"http://127.0.0.1:{server.server_port}/", TOKEN)


def test_connect_with_a_part_of_the_login_uses_no_other(monkeypatch):
    monkeypatch.setattr("bot.remote.api.current", lambda _: None)
    with pytest.raises(UserError, match="logged in"):
        connect()
    with pytest.raises(UserError, match="The URL must be"):
        connect(token=TOKEN)


@pytest.mark.parametrize("terminal", [True, False])
def test_sentence_clears_the_line_of_a_terminal_only(monkeypatch, capsys, terminal):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    say("done")
    assert capsys.readouterr().err == (f"{CLEAR}done\n" if terminal else "done\n")


def trial(name, state, value, /, **parameters):
    times = {"started": "2026-11-28T01:00:00Z", "ended": "2026-11-28T01:00:00.5Z" if value else None}
    return {"name": name, "state": state, "value": value, "parameters": parameters, **times}


def test_frame_has_a_row_for_each_trial_with_parameters_of_their_types(server, sweepbot):
    trials = [
        trial("lr-a", "done", 0.25, lr="1e-3", kind="adam", depth="2", value="7"),
        trial("lr-b", "failed", None, lr="0.1", kind="nan", value="8"),
    ]
    server.answers = [(200, {}, json.dumps({"trials": trials}))]
    frame = sweepbot.frame("lr-brave-otter")
    assert list(frame) == [
        "name",
        "state",
        "value",
        "started",
        "ended",
        "lr",
        "kind",
        "depth",
        "params.value",
    ]
    assert frame["lr"].tolist() == [0.001, 0.1]
    assert frame["kind"].tolist() == ["adam", "nan"]
    assert (frame["depth"][0], frame["depth"].isna()[1], frame["value"].isna()[1]) == (2, True, True)
    assert frame["params.value"].sum() == 15
    assert (frame["ended"] - frame["started"])[0].total_seconds() == 0.5


def test_frame_keeps_parameters_that_are_named_like_columns_apart(server, sweepbot):
    trials = [trial("lr-a", "running", None, **{"value": "1", "params.value": "2"})]
    server.answers = [(200, {}, json.dumps({"trials": trials}))]
    frame = sweepbot.frame("lr-brave-otter")
    assert (frame["params.value"][0], frame["params.params.value"][0]) == (1, 2)
    assert frame["value"].dtype == float


def test_frame_of_a_sweep_without_trials_is_empty(server, sweepbot):
    server.answers = [(200, {}, '{"trials": []}')]
    frame = sweepbot.frame("lr-brave-otter")
    assert (frame.empty, frame["value"].dtype, str(frame["ended"].dt.tz)) == (True, float, "UTC")


def test_frame_with_a_time_that_is_none_is_refused(server, sweepbot):
    trials = [trial("lr-a", "running", None) | {"started": "soon"}]
    server.answers = [(200, {}, json.dumps({"trials": trials}))]
    with pytest.raises(UserError, match='unexpected "started": the server'):
        sweepbot.frame("lr-brave-otter")


def test_frame_without_pandas_says_what_to_install(sweepbot, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match=r"Run `pip install pandas`"):
        sweepbot.frame("lr-brave-otter")


def test_wait_returns_a_sweep_that_needs_a_person(server, sweepbot):
    sweeps = [
        {"id": "lr-brave-otter", "state": state, "reason": None, "ended": ended}
        for state, ended in (("running", None), ("held", None), ("failed", "now"))
    ]
    server.answers = [(200, {}, "".join(f"data: {json.dumps(each)}\n\n" for each in sweeps))]
    assert sweepbot.wait("lr-brave-otter")["state"] == "held"
    server.answers = [(200, {}, json.dumps(sweeps[1]))]
    assert sweepbot.show("lr-brave-otter") == sweeps[1]


def test_method_returns_what_its_operation_answers(server, sweepbot):
    server.answers = [(200, {}, '{"answer": 1, "sweeps": [], "next": null}')]
    assert list(sweepbot.list(1)) == []
    assert server.calls.pop()[1] == "/api/v1/sweeps?limit=1"
    server.answers = [(200, {}, '{"answer": 1}')]
    calls = {
        "POST /plans": sweepbot.plan("branch=main"),
        "POST /sweeps": sweepbot.launch("branch=main"),
        "GET /sweeps/lr%2Fx": sweepbot.show("lr/x"),
        "GET /sweeps/lr-x/logs?trial=t1": sweepbot.logs("lr-x", "t1"),
        "POST /sweeps/lr-x/commands": sweepbot.command("lr-x", "cancel"),
        "POST /spaces/check": sweepbot.check_space("objective: {}"),
        "GET /comparison?sweeps=lr-x%2Clr-y": sweepbot.compare("lr-x,lr-y"),
        "GET /history?space=lr": sweepbot.history("lr"),
    }
    assert [f"{verb} {path.removeprefix('/api/v1')}" for verb, path, _ in server.calls] == list(calls)
    assert list(calls.values()) == [{"answer": 1}] * len(calls)


def test_repeated_command_is_the_same_request_and_two_commands_are_two(server, sweepbot):
    server.answers = [(503, {}, "{}"), *[(202, {}, "{}")] * 2]
    sweepbot.command("lr-brave-otter", "extend trials=30")
    sweepbot.command("lr-brave-otter", "extend trials=30")
    first, again, second = [headers["Idempotency-Key"] for _, _, headers in server.calls]
    assert (first == again, first == second) == (True, False)
