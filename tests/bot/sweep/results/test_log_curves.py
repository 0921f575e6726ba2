"""Learning curves from logs: read on where the last reading ended, whatever the log contains."""

import asyncio
import json
import math
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bot.core.curves import Point
from bot.core.space import MetricSource
from bot.core.stopping import Objective, StoppingRule, at_rungs, judge
from bot.sweep.results import log_curves
from bot.sweep.results.log_curves import LogCurve, LogQuery, LogReader, LogSource, log_query, read_on
from bot.sweep.spaces.metrics import line_filter
from k8s.api.errors import ApiError
from k8s.pods import Pod
from reader.follow import Follower
from reader.series import Metrics
from tests.bot.factories import PLAN
from tests.reader.event_files import scalar

STAMP = "2026-11-22T13:00:{:02}.{:09}{}"
SOURCE = LogSource(trial="t", namespace="sweeps", pod="t-x", finished=False)


def query(*sources, metric="loss", strategy="min", rungs=range(1, 100)):
    return LogQuery(
        pattern=line_filter((metric,)),
        strategy=strategy,
        rungs=frozenset(rungs),
        sources=sources or (SOURCE,),
    )


class Kubelet:
    """A log as the kubelet serves it: whole lines since a second, cut at limitBytes."""

    def __init__(self, zone="Z"):
        self.lines, self.zone, self.asked, self.away = [], zone, [], False

    def log(self, second, *texts):
        for text in texts:
            self.lines.append((second, f"{STAMP.format(second, len(self.lines), self.zone)} {text}\n"))

    async def raw_log(self, namespace, pod, options):
        self.asked.append(options)
        if self.away:
            raise ApiError(500, "", "no kubelet")
        since = options.get("sinceTime", "")
        first = int(since[17:19]) if since else 0
        text = "".join(line for second, line in self.lines if second >= first)
        return text.encode()[: options["limitBytes"]].decode(errors="replace")


def values(curve):
    return [(point.step, point.value) for point in curve.points]


@pytest.mark.parametrize("zone", ["Z", "+02:00"])
async def test_read_log_that_grows_counts_each_report_once(zone):
    counting_all = query(strategy="latest")
    kubelet = Kubelet(zone)
    reader, read = LogReader(kubelet), {}
    kubelet.log(1, "starting", "epoch 1: loss=0.9", '{"loss": 0.8, "val_loss": 3}')
    read = await reader.read(read, counting_all)
    kubelet.log(1, "loss: 0.7 in the same second")
    kubelet.log(2, "loss=nan", "no metric", "loss=5e-1, loss=0.4")
    read = await reader.read(read, counting_all)
    read = await reader.read(read, counting_all)
    assert values(read["t"]) == [(1, 0.9), (2, 0.8), (3, 0.7), (4, 0.5), (5, 0.4)]
    assert kubelet.asked[0].get("sinceTime") is None
    hour = "13" if zone == "Z" else "11"
    assert kubelet.asked[1]["sinceTime"] == f"2026-11-22T{hour}:00:01Z"
    assert read["t"].points[0].at < read["t"].points[-1].at


async def test_read_pod_that_was_replaced_starts_again_and_a_complete_one_is_not_read():
    kubelet = Kubelet()
    kubelet.log(1, "loss=1")
    reader = LogReader(kubelet)
    old = {"t": LogCurve(pod="t-old", reports=7, points=(Point(7, 0.1),))}
    done = LogSource(trial="t", namespace="sweeps", pod="t-x", finished=True)
    read = await reader.read(old, query(done))
    assert values(read["t"]) == [(1, 1.0)]
    again = await reader.read(read, query(done))
    assert (again, read["t"].complete, len(kubelet.asked)) == (read, True, 1)


async def test_read_pod_that_was_replaced_under_its_name_starts_again():
    kubelet = Kubelet()
    kubelet.log(1, "loss=1", "loss=2")
    reader, before = (
        LogReader(kubelet),
        LogSource(trial="t", namespace="s", pod="t-master-0", uid="1", finished=True),
    )
    read = await reader.read({}, query(before))
    kubelet.lines.clear()
    kubelet.log(1, "loss=3")
    read = await reader.read(read, query(replace(before, uid="2", container="pytorch")))
    assert values(read["t"]) == [(1, 3.0)]
    assert [asked["container"] for asked in kubelet.asked] == ["main", "pytorch"]


async def test_read_log_that_is_away_keeps_what_was_read():
    kubelet = Kubelet()
    kubelet.log(1, "loss=1")
    reader = LogReader(kubelet)
    read = await reader.read({}, query())
    kubelet.away = True
    assert await reader.read(read, query()) == read


async def test_read_log_larger_than_a_piece_is_read_on(monkeypatch):
    monkeypatch.setattr(log_curves, "MAX_PIECE", 600)
    kubelet = Kubelet()
    for second in range(1, 10):
        kubelet.log(second, *(f"loss={second}.{n} {'x' * 40}" for n in range(4)))
    reader, read = LogReader(kubelet), {}
    for _ in range(12):
        read = await reader.read(read, query(strategy="latest"))
    assert [value for _, value in values(read["t"])] == [s + n / 10 for s in range(1, 10) for n in range(4)]


async def test_read_second_with_more_lines_than_a_piece_is_left_behind(monkeypatch):
    monkeypatch.setattr(log_curves, "MAX_PIECE", 600)
    kubelet = Kubelet()
    kubelet.log(1, *(f"loss={n} {'x' * 40}" for n in range(50)))
    kubelet.log(2, "loss=0.5")
    reader, read = LogReader(kubelet), {}
    for _ in range(4):
        read = await reader.read(read, query())
    assert read["t"].latest.value == 0.5


async def test_read_first_line_longer_than_a_piece_is_left_behind(monkeypatch):
    monkeypatch.setattr(log_curves, "MAX_PIECE", 200)
    kubelet, curves = Kubelet(), {}
    kubelet.log(1, "[=>] " * 100)  # a progress bar without line breaks
    kubelet.log(5, "loss=0.5")
    for _ in range(2):
        curves = await LogReader(kubelet).read(curves, query())
    assert [point.value for point in curves["t"].points] == [0.5]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "no stamp loss=1\n",
        "2026 loss=1\n",
        "\x00\ufffd\n",
        f"{STAMP.format(1, 1, 'Z')}\n",
        "x" * 3_000_000,
    ],
)
def test_read_on_with_text_that_is_no_log_finds_nothing(text):
    assert read_on(LogCurve(pod="p"), text, query(), finished=False).points == ()


def test_read_on_with_a_long_line_searches_only_its_start():
    line = f"{STAMP.format(1, 1, 'Z')} loss=1 {'loss ' * 100_000} loss=2\n"
    assert values(read_on(LogCurve(pod="p"), line, query(), finished=False)) == [(1, 1.0)]


@pytest.mark.parametrize(
    ("strategy", "kept"),
    [("min", [0.5, 0.5, 0.0]), ("max", [0.5, 0.7, 999.0]), ("latest", [0.5, 0.7, 0.6])],
)
def test_read_on_with_many_reports_keeps_the_objective_at_the_rungs(strategy, kept):
    series = [0.5, 0.6, 0.7, 0.0, 999.0, *(0.6 for _ in range(5_000)), 0.65]
    lines = [f"{STAMP.format(n // 100, n, 'Z')} loss={value}\n" for n, value in enumerate(series)]
    asked, curve = query(strategy=strategy, rungs=(1, 3, 9, 10**6)), LogCurve(pod="p")
    for first in range(0, len(lines), 700):
        curve = read_on(curve, "".join(lines[first : first + 700]), asked, finished=False)
    assert values(curve) == list(zip((1, 3, 9), kept, strict=True))
    assert (curve.reports, curve.latest.step, curve.latest.value) == (5_006, 5_006, 0.65)


async def test_read_many_logs_reads_few_at_a_time():
    class Busy(Kubelet):
        now = most = 0

        async def raw_log(self, namespace, pod, options):
            Busy.now += 1
            Busy.most = max(Busy.most, Busy.now)
            await asyncio.sleep(0)
            Busy.now -= 1
            return ""

    sources = [LogSource(trial=f"t{n}", namespace="s", pod=f"p{n}", finished=False) for n in range(40)]
    assert len(await LogReader(Busy()).read({}, query(*sources))) == 40
    assert Busy.most == log_curves.PARALLEL


async def test_read_continues_after_an_error_of_the_kubelet_within_the_log():
    kubelet = Kubelet()
    kubelet.log(1, "loss=0.5")
    kubelet.lines.append((1, "rpc error: code = NotFound desc = can't find the container\n"))
    reader = LogReader(kubelet)
    read = await reader.read({}, query())
    kubelet.log(2, "loss=0.4")
    assert values((await reader.read(read, query()))["t"]) == [(1, 0.5), (2, 0.4)]


def line(*points, metric="loss"):
    return json.dumps({"metric": metric, "points": points})


async def test_read_lines_of_the_reader_have_steps_and_the_objective_at_rungs():
    ours = LogQuery(
        metric="loss", more=("accuracy",), strategy="min", rungs=frozenset({1, 3, 9}), sources=(SOURCE,)
    )
    kubelet = Kubelet()
    kubelet.log(1, line([1, 0.1, 10.0, 0.1, 0.1], metric="rate"))
    kubelet.log(1, line([1, 0.1, 10.0, 0.1, 0.1], metric="caf\udce9/rate"))  # a folder that isn't UTF-8
    first = line([1, 0.5, 10.0, 0.5, 0.5], [2, "nan", 11.0, 0.5, 0.5], [4, 0.7, 12.0, 0.5, 0.7])
    kubelet.log(1, first, line([9, 7, 12.0, 7, 7], metric="accuracy"))
    kubelet.log(
        2, "Traceback", "[1]", '{"metric": "loss", "points": [[1]]}', '{"metric": "loss", "points": [['
    )
    reader = LogReader(kubelet)
    read = await reader.read({}, ours)
    assert values(read["t"]) == [(1, 0.5), (4, 0.5)]
    kubelet.log(3, first)  # of a reader that was started again
    kubelet.log(4, line([20, 0.25, 30.0, 0.25, 0.7]))
    read = await reader.read(read, ours)
    assert values(read["t"]) == [(1, 0.5), (4, 0.5), (20, 0.25)]
    assert read["t"].latest == Point(20, 0.25, 30.0)
    assert [point.step for point in read["t"].curve("loss")] == [1, 2, 4, 20]
    assert read["t"].curve("accuracy") == (Point(9, 7.0, 12.0),)
    assert (read["t"].names, read["t"].curve("rate")) == (("accuracy", "caf?/rate", "rate"), ())


@pytest.mark.parametrize("at", ["inf", "nan", 1e300, -1])
def test_read_on_with_a_time_that_cannot_be_right_has_none(at):
    ours = LogQuery(metric="loss", strategy="min", rungs=frozenset())
    text = f"{STAMP.format(1, 1, 'Z')} {line([1, 0.5, at, 0.5, 0.5])}\n"
    assert read_on(LogCurve(pod="p"), text, ours, finished=False).latest == Point(1, 0.5, 0.0)


async def test_read_curve_of_many_points_is_thinned_and_keeps_the_last():
    ours = LogQuery(metric="loss", strategy="latest", rungs=frozenset(), sources=(SOURCE,))
    kubelet = Kubelet()
    for second in range(50):
        steps = range(10 * second, 10 * second + 10)
        kubelet.log(second, line(*([step, step, float(step), 0, step] for step in steps)))
    reader, read = LogReader(kubelet), {}
    for _ in range(3):
        read = await reader.read(read, ours)
    steps = [point.step for point in read["t"].curve("loss")]
    assert steps == [*range(0, 500, 4), 499], "evenly, and the last one"
    assert log_curves.MAX_CURVE / 2 <= len(steps) <= log_curves.MAX_CURVE


async def test_read_on_demand_reads_to_the_end_until_its_time_is_over(monkeypatch):
    monkeypatch.setattr(log_curves, "MAX_PIECE", 600)
    ours = LogQuery(metric="loss", strategy="latest", rungs=frozenset(), sources=(SOURCE,))
    kubelet = Kubelet()
    for second in range(50):
        kubelet.log(second, line([second, 1, float(second), 1, 1]))
    reader, hour = LogReader(kubelet), time.monotonic() + 3600
    assert len((await reader.read({}, ours, hour))["t"].curve("loss")) == 50
    assert (await reader.read({}, ours, time.monotonic()))["t"].curve("loss") == ()


RECORDED = Path(__file__).parents[4] / "bench/curves/digits.json"


@pytest.mark.parametrize(
    ("rule", "strategy"),
    [(StoppingRule(name="asha", grace=1), "min"), (StoppingRule(name="median", grace=3), "latest")],
)
def test_recorded_curves_in_event_files_lead_to_the_decisions_of_those_in_mlflow(rule, strategy, tmp_path):
    """From files that grow, by the reader's lines and a log, to the trials that are stopped, and where."""
    asked = LogQuery(metric="loss", strategy=strategy, rungs=frozenset(rule.rungs))
    logged, filed = {}, {}
    for number, each in enumerate(json.loads(RECORDED.read_text())):
        losses = [math.nan if loss is None else loss for loss in each["loss"]]
        curve = [Point(step, loss, 1e9 + 7 * number + step) for step, loss in enumerate(losses, 1)]
        logged[str(number)] = at_rungs(rule, strategy, tuple(curve))
        folder = tmp_path / str(number)
        folder.mkdir()
        follower, metrics, log = Follower(str(folder)), Metrics(["loss"], rule.rungs), LogCurve(pod="p")
        for start in range(0, len(curve), 30):  # that many between two lines
            with (folder / "events.out.tfevents.1").open("ab") as file:
                file.writelines(scalar("loss", p.value, p.step, p.at) for p in curve[start : start + 30])
            for _, found in follower.poll(lambda: False):
                metrics.add("", found)
            [series] = metrics.all
            log = read_on(log, f"{STAMP.format(1, start, 'Z')} {series.line()}\n", asked, finished=False)
        filed[str(number)] = log.points
    objective = Objective(maximize=False, strategy=strategy)
    (_, of_mlflow), (_, of_files) = (
        judge(rule, objective, {}, curves, {*curves}) for curves in (logged, filed)
    )
    assert [(v.trial, v.step, v.others) for v in of_files] == [(v.trial, v.step, v.others) for v in of_mlflow]
    assert len(of_files) > 20


def test_log_query_reads_the_output_only_for_early_stopping_and_the_reader_always():
    rule = StoppingRule(name="asha", grace=2, factor=3)
    first = Pod(name="a-x", job="a", uid="1", node="gpu-1", finished=False)
    second, other = replace(first, name="a-y", index=1), replace(first, name="other-x", job="other")
    pods = [first, second, replace(first, name="b-x", job="b", deleted=True), other]
    stdout = replace(PLAN, space=replace(PLAN.space, source=MetricSource.STDOUT))
    judged = replace(stdout, space=replace(stdout.space, stopping=rule))
    spec = PLAN.experiment["spec"] | {"metricsCollectorSpec": {"collector": {"kind": "Push"}}}
    with_reader = replace(PLAN, experiment={**PLAN.experiment, "spec": spec})
    assert log_query(PLAN, pods, {"a", "b"}, None) is None
    assert log_query(stdout, pods, {"a", "b"}, None) is None
    printed, written = (log_query(plan, pods, {"a", "b"}, None) for plan in (judged, with_reader))
    assert re.search(printed.pattern, "epoch 3 val_loss: 0.5").groups() == ("val_loss", "0.5")
    assert (printed.strategy, sorted(printed.rungs)[:3]) == ("min", [2, 6, 18])
    assert (written.pattern, written.metric, written.rungs) == ("", "val_loss", frozenset())
    source = LogSource(trial="a", namespace="sweeps", pod="a-x", uid="1", container="main", finished=False)
    assert printed.sources == (source,)
    assert written.sources == (replace(source, container="metrics-reader"),)
