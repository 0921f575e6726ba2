"""The service as Katib calls it: a process behind gRPC."""

import json
import math
import re
import signal
from collections.abc import Iterable, Iterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from search import katib_pb2 as pb
from search.service import MAX_MESSAGE, MAX_POINTS, PROBED, STOPPED_STEP, STOPPED_VALUE, suggestions
from search.space import INACTIVE, Choice, Range, Space
from tests.search.process import ROOT, Search, Service, Status, experiment, request, running_service, trial
from tests.search.spaces import SPACES, X, loss

LINE = experiment("line", Space(dimensions=(X,)))


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running_service() as started:
        yield started


def in_process(of: pb.GetSuggestionsRequest) -> list[dict[str, str]]:
    rows = suggestions(of).parameter_assignments
    return [{each.name: each.value for each in row.assignments} for row in rows]


def line(*trials: pb.Trial, n: int = 2, total: int = 12) -> pb.GetSuggestionsRequest:
    return request(LINE, trials, n, total)


@pytest.mark.slow
def test_seven_spaces_reach_their_end_with_the_service_killed_at_every_sixth_call() -> None:
    """Each answer is that of a service that was never killed; each space has a kill of its own."""
    searches = {name: Search(experiment(name, space), total=9) for name, space in SPACES.items()}
    service, calls = Service(), 0
    try:
        while any(len(each.ended) < each.total for each in searches.values()):
            for name, each in searches.items():
                if wanted := each.request():
                    calls += 1
                    if calls % 6 == 0:
                        service.kill()
                        service = Service()
                    each.suggested += service.suggest(wanted)
                    assert each.suggested[-wanted.current_request_number :] == in_process(wanted)
                if (at := len(each.ended)) < each.total:
                    point = SPACES[name].read(each.suggested[at])
                    assert point is not None
                    value = loss(SPACES[name], point)
                    each.ended.append(trial(at, each.suggested[at], Status.SUCCEEDED, value))
    finally:
        service.kill()
    assert calls == 7 * 7  # three trials at once, then one for each that ended


def test_service_is_healthy_by_the_name_in_katibs_probes(service: Service) -> None:
    check = service.channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        health_pb2.HealthCheckRequest.SerializeToString,
        health_pb2.HealthCheckResponse.FromString,
    )
    assert (
        check(health_pb2.HealthCheckRequest(service=PROBED)).status == health_pb2.HealthCheckResponse.SERVING
    )
    with pytest.raises(grpc.RpcError) as refused:
        check(health_pb2.HealthCheckRequest(service="other"))
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


def test_service_answers_from_the_request_alone(service: Service) -> None:
    """Failed trials, and values that aren't in the space or not finite, change nothing."""
    good = [trial(at, {"x": f"0.{at}"}, Status.SUCCEEDED, at) for at in range(1, 8)]
    ended_early = trial(8, {"x": "0.8"}, Status.EARLYSTOPPED, 0)
    useless = [
        trial(9, {"x": "0.9"}, Status.FAILED),
        trial(10, {"x": "0.9"}, Status.KILLED),
        trial(11, {"x": "0.9"}, Status.SUCCEEDED, "nan"),
        trial(12, {"x": "0.9"}, Status.SUCCEEDED, "unavailable"),
        trial(13, {"x": "0.9"}, Status.SUCCEEDED),
        trial(14, {"x": "9"}, Status.SUCCEEDED, 0),
        trial(15, {}, Status.RUNNING),
    ]
    answer = service.suggest(line(*good, ended_early))
    assert len(answer) == 2
    assert service.suggest(line(*useless, ended_early, *reversed(good))) == answer
    assert service.suggest(line(*good)) != answer
    assert service.suggest(line(*good, ended_early, trial(9, {"x": "0.9"}, Status.RUNNING))) != answer


@pytest.mark.parametrize("condition", [Status.RUNNING, Status.KILLED])
def test_stopped_trials_teach_by_their_step_and_value(condition: Status.TrialConditionType) -> None:
    """Katib passes on the last of a trial's conditions, which is Running if Killed was put first."""

    def stopped(at: int, x: float, step: int, value: float) -> pb.Trial:
        made = trial(at, {"x": str(x)}, condition)
        for name, text in ((STOPPED_VALUE, value), (STOPPED_STEP, step)):
            made.status.observation.metrics.append(pb.Metric(name=name, value=str(text)))
        return made

    def found(good: float, bad: float, worse: float) -> float:
        """Return the median of what is proposed next: at the same step, lower values are better."""
        trials = [stopped(at, good + at / 100, 9, 1.0 + at / 100) for at in range(8)]
        trials += [stopped(8 + at, bad + at / 100, 9, 5.0) for at in range(4)]
        trials += [stopped(12 + at, worse + at / 100, 1, 0.1) for at in range(4)]
        trials += [stopped(16, 0.5, 9, math.nan)]
        return sorted(float(each["x"]) for each in in_process(line(*trials, n=9, total=30)))[4]

    assert found(good=0.1, bad=0.5, worse=0.8) < 0.4
    assert found(good=0.8, bad=0.5, worse=0.1) > 0.6


def test_service_counts_positions_by_the_suggestions_made_so_far(service: Service) -> None:
    together = service.suggest(line(n=5, total=5))
    assert service.suggest(line(n=2, total=5)) == together[3:]
    other = experiment("another", Space(dimensions=(X,)))
    assert service.suggest(request(other, [], 5, 5)) != together
    seeded = experiment("line", Space(dimensions=(X,)), random_state="1")
    assert service.suggest(request(seeded, [], 5, 5)) != together


def test_service_follows_the_direction_of_the_metric(service: Service) -> None:
    trials = [trial(at, {"x": str(at / 20)}, Status.SUCCEEDED, at) for at in range(20)]
    found = {}
    for maximize in (False, True):
        of = experiment("line", Space(dimensions=(X,), maximize=maximize))
        found[maximize] = [float(each["x"]) for each in service.suggest(request(of, trials, 9, 29))]
    assert sorted(found[False])[4] < 0.4 < 0.6 < sorted(found[True])[4]


def test_service_tries_the_points_of_an_earlier_search_that_are_in_the_space(service: Service) -> None:
    past = json.dumps([{"x": "0.5", "other": "1"}, {"x": "7"}, {"x": "2.5e-1"}])
    answer = service.suggest(request(experiment("line", Space(dimensions=(X,)), past=past), [], 4, 4))
    cold = service.suggest(line(n=4, total=4))
    assert answer == [{"x": "0.5"}, cold[1], {"x": "0.25"}, cold[3]]


@pytest.mark.parametrize("ended", [0, 12])
def test_parameter_whose_condition_is_not_met_has_no_value(service: Service, ended: int) -> None:
    """Covered evenly at first, then modeled; the service reads its own word again."""
    space = Space(
        dimensions=(X, Choice(name="opt", values=("sgd", "adam")), Range(name="m", low=0.1, high=0.9))
    )
    of = experiment("conditional", space, conditions=json.dumps({"m": ["opt", "sgd"]}))
    told = service.suggest(request(of, [], ended, ended))
    trials = [trial(at, each, Status.SUCCEEDED, float(each["x"])) for at, each in enumerate(told)]
    answer = service.suggest(request(of, trials, 20, ended + 20))
    for point in told + answer:
        assert (point["m"] == INACTIVE) == (point["opt"] == "adam")
    assert {each["opt"] for each in answer} == {"sgd", "adam"}
    if ended:
        assert answer != service.suggest(request(of, [], 20, ended + 20))


@pytest.mark.parametrize(
    ("conditions", "why"),
    [
        ("[]", "conditions must be a JSON object of lists of texts"),
        ('{"x": ["opt"]}', "conditions must be a JSON object of lists of texts"),
        ('{"x": ["opt", "lion"]}', "x: the condition must name values of a list without a condition"),
        ('{"x": ["x", "1"]}', "x: the condition must name values of a list without a condition"),
    ],
)
def test_malformed_conditions_are_rejected(service: Service, conditions: str, why: str) -> None:
    space = Space(dimensions=(X, Choice(name="opt", values=("sgd", "adam"))))
    with pytest.raises(grpc.RpcError) as refused:
        service.validate(experiment("e", space, conditions=conditions))
    assert why in refused.value.details()


@pytest.mark.parametrize("n", [0, -5])
def test_request_for_no_trials_is_answered_with_none(service: Service, n: int) -> None:
    assert service.suggest(line(n=n, total=3)) == []


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (experiment("e", Space(dimensions=(X,)), method="gp"), 'tpe, cmaes, sobol, random, grid; got "gp"'),
        (
            experiment("e", Space(dimensions=(X,)), gamma="1"),
            "unknown setting gamma; known: conditions, method",
        ),
        (
            experiment("e", Space(dimensions=(X,)), random_state="-1"),
            "random_state must be a whole number from 0",
        ),
        *(
            (
                experiment("e", Space(dimensions=(X,)), past=past),
                "past must be a JSON list of objects of texts",
            )
            for past in ("[", "{}", '[{"x": 1}]', "[1]", "[" * 9_000, f'["{"x" * 20_000}"]')
        ),
        (experiment("e", Space(dimensions=(X,)), method="grid"), "x: a grid needs a step here"),
        (experiment("e", Space(dimensions=(X,)), method="cmaes"), "cmaes needs at least two ranges"),
        (pb.Experiment(name="e"), "the space has no parameters"),
    ],
)
def test_search_that_cant_be_made_is_rejected_with_its_reason(
    service: Service, wrong: pb.Experiment, why: str
) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        service.validate(wrong)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert why in refused.value.details()


@pytest.mark.parametrize(
    ("low", "high", "step", "kind", "why"),
    [
        ("a", "1", "", pb.DOUBLE, 'x: "a" is not a number'),
        ("nan", "1", "", pb.DOUBLE, "x: min must be at most max"),
        ("0", "1e999", "", pb.DOUBLE, "x: min must be at most max"),
        ("9" * 9000, "1", "", pb.INT, "is not a whole number up to 2^53"),
        ("0", "1.5", "", pb.INT, 'x: "1.5" is not a whole number up to 2^53'),
        ("0", "1", "1e-300", pb.DOUBLE, "x: step is too small"),
        ("0", "1", "", pb.UNKNOWN_TYPE, "x: unknown type of parameter"),
        ("0", "1", "", pb.CATEGORICAL, "x: the list is empty"),
    ],
)
def test_malformed_parameter_is_rejected_with_its_reason(
    service: Service, low: str, high: str, step: str, kind: pb.ParameterType, why: str
) -> None:
    space = pb.FeasibleSpace(min=low, max=high, step=step)
    parameter = pb.ParameterSpec(name="x", parameter_type=kind, feasible_space=space)
    listed = pb.ExperimentSpec.ParameterSpecs(parameters=[parameter])
    wrong = pb.Experiment(name="e", spec=pb.ExperimentSpec(parameter_specs=listed))
    for call in (lambda: service.validate(wrong), lambda: service.suggest(request(wrong, [], 1, 1))):
        with pytest.raises(grpc.RpcError) as refused:
            call()
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert why in refused.value.details()


def test_huge_request_is_refused_and_the_next_one_answered(service: Service) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        service.suggest(line(n=MAX_POINTS + 1, total=MAX_POINTS + 1))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(grpc.RpcError) as refused:
        service.suggest(line(trial(0, {"x": "1" * MAX_MESSAGE}, Status.RUNNING)))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert len(service.suggest(line())) == 2


def test_generated_messages_are_those_of_the_proto() -> None:
    """Every `name = number;` in the file, in its order: after a change it is generated again."""
    text = (ROOT / "search/katib.proto").read_text()
    fields = [(each.name, each.number) for each in fields_of(pb.DESCRIPTOR.message_types_by_name.values())]
    listed = re.findall(r"^ *(?:repeated )?[A-Za-z0-9.]+ (\w+) = (\d+);", text, re.MULTILINE)
    assert sorted((name, int(number)) for name, number in listed) == sorted(fields)


def fields_of(messages: Iterable[Any]) -> Iterator[Any]:
    for each in messages:
        yield from each.fields
        yield from fields_of(each.nested_types)


def test_sigterm_ends_the_process() -> None:
    with running_service() as started:
        started.process.send_signal(signal.SIGTERM)
        assert started.process.wait(30) == 0


def two_values(at: int, x: float, first: float, second: object) -> pb.Trial:
    made = trial(at, {"x": str(x)}, Status.SUCCEEDED, first)
    made.status.observation.metrics.append(pb.Metric(name="latency", value=str(second)))
    return made


def test_several_objectives_lead_to_the_points_that_none_beats(service: Service) -> None:
    """Between the best of each: here from 0.6 to 0.8. What lacks a value of one teaches nothing."""
    of = experiment("two", Space(dimensions=(X,)), objectives='{"latency": "maximize"}')
    trials = [two_values(at, at / 20, abs(at / 20 - 0.6), -abs(at / 20 - 0.8)) for at in range(20)]
    answer = service.suggest(request(of, trials, 9, 29))
    assert 0.5 < sorted(float(each["x"]) for each in answer)[4] < 0.9
    best = [two_values(20 + at, 0.1, -1.0, value) for at, value in enumerate(("nan", "unavailable", ""))]
    stopped = [trial(23, {"x": "0.1"}, Status.KILLED)]
    for name, text in ((STOPPED_VALUE, "-1"), (STOPPED_STEP, "9")):
        stopped[0].status.observation.metrics.append(pb.Metric(name=name, value=text))
    assert service.suggest(request(of, [*trials, *best, *stopped], 9, 29)) == answer
    assert service.suggest(request(of, [*trials, two_values(24, 0.1, -1.0, 1.0)], 9, 29)) != answer
    one = experiment("two", Space(dimensions=(X,)), objectives='{"latency": "minimize"}')
    assert service.suggest(request(one, trials, 9, 29)) != answer


@pytest.mark.parametrize(
    "objectives", ["[]", '{"a": "higher"}', '{"a": 1}', json.dumps(dict.fromkeys("abc", "minimize"))]
)
def test_malformed_objectives_are_rejected(service: Service, objectives: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        service.validate(experiment("e", Space(dimensions=(X,)), objectives=objectives))
    assert "objectives must be a JSON object of up to 2 goals by metric" in refused.value.details()
