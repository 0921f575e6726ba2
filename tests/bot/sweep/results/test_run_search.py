"""Runs are read from MLflow in answers of limited size, whatever a training logs."""

import pytest

from bot.sweep.results.run_search import PAGE_SIZE, RunSearch
from bot.sweep.results.run_tags import TRIAL
from bot.sweep.results.tracking_api import AnswerTooLargeError, AnswerTooSlowError
from bot.sweep.results.trial_runs import changes
from tests.bot.sweep.results.factories import a_result, some_results

NAMES = [f"lr-brave-otter-t{number}" for number in range(150)]
RESULTS = some_results(*(a_result(name.removeprefix("lr-brave-otter-")) for name in NAMES))


class Server:
    """`large`: trials whose run alone is too large; `most`: runs that fit into an answer."""

    def __init__(self, most: int, large: tuple[str, ...] = ()) -> None:
        self.most, self.large, self.sizes = most, large, list[int]()

    def __call__(self, experiment, where, size, token):
        assert experiment == ["7"]
        self.sizes.append(size)
        there = [name for name in NAMES if not where or f"'{name}'" in where]
        page = there[int(token or 0) :][:size]
        if len(page) > self.most or {*page} & {*self.large}:
            raise AnswerTooLargeError("too large")
        after = int(token or 0) + size
        return [raw(name) for name in page], str(after) if after < len(there) else ""


def raw(name):
    logged = [{"key": f"grad/{number}", "value": 0.1} for number in range(50)]
    tags = [{"key": TRIAL, "value": name}, {"key": "sweepbot.state", "value": "succeeded"}]
    data = {"tags": tags, "metrics": [*logged, {"key": "val_loss", "value": 0.5}], "params": logged}
    return {"info": {"run_id": f"run of {name}", "status": "FINISHED", "start_time": 1}, "data": data}


def all_runs(server):
    search = RunSearch(server, ["7"], RESULTS)
    search.read()
    return [run for trial in RESULTS.trials for run in search.of(trial)]


@pytest.mark.parametrize(
    ("most", "sizes"), [(100, [100, 100]), (10, [100, *[10] * 15]), (9, [100, 10, *[1] * 100, *[1] * 50])]
)
def test_pages_that_are_too_large_are_read_in_smaller_ones(most, sizes):
    server = Server(most)
    runs = all_runs(server)
    assert sorted(run.trial for run in runs) == sorted(NAMES)
    assert {run.metrics for run in runs} == {frozenset({"val_loss"})}
    assert (server.sizes, PAGE_SIZE) == (sizes, 100)
    assert changes(RESULTS, runs) == []


def test_run_that_is_too_large_stays_as_it_is_and_holds_up_no_other(caplog):
    server = Server(100, large=(NAMES[3],))
    runs = all_runs(server)
    assert sorted({run.trial for run in runs}) == sorted(NAMES)
    assert [run.trial for run in runs if not run.id] == [NAMES[3]]
    assert changes(RESULTS, runs) == []
    assert f"the MLflow run of {NAMES[3]} stays as it is" in caplog.text


def test_server_that_is_too_slow_for_one_run_leaves_no_run_as_it_is():
    def slow(*_):
        raise AnswerTooSlowError

    with pytest.raises(AnswerTooSlowError):
        all_runs(slow)


@pytest.mark.parametrize("odd", [{}, {"info": 3}, {"info": {"run_id": 3}}, {"data": {"tags": [3]}}])
def test_run_of_another_shape_is_skipped(odd):
    runs = all_runs(lambda *_: ([raw(NAMES[0]), raw(NAMES[1]) | odd], ""))
    assert NAMES[0] in {run.trial for run in runs}
