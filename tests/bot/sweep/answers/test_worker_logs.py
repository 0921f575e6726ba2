"""The logs of several workers: whose log is shown, and which ones the file has."""

from types import SimpleNamespace

import pytest

from bot.sweep.answers.sweep_log import NO_POD, worker_logs
from k8s.pods import Pod


def a_worker(index):
    return Pod(name=f"t1-{index}", index=index, job="t1", node="gpu-1", finished=False)


async def logs_of(*workers, nodes):
    async def tail(_namespace, pod, _container, _lines):
        return f"log of {pod}"

    return await worker_logs(
        "t1", [a_worker(each) for each in workers], "sweeps", nodes, SimpleNamespace(tail=tail)
    )


async def test_file_has_the_logs_of_all_workers():
    found = await logs_of(1, 0, nodes=2)
    assert found.title == "Logs of all workers of t1"
    assert (found.source, found.shown) == ("trial `t1`, worker 1 of 2", "log of t1-0")
    assert found.whole == (
        "==> Worker 1 of 2, t1-0 <==\nlog of t1-0\n\n==> Worker 2 of 2, t1-1 <==\nlog of t1-1"
    )


@pytest.mark.parametrize(("left", "shown"), [(0, "worker 1 of 2"), (1, "worker 2 of 2")])
async def test_file_says_which_workers_have_no_pod(left, shown):
    found = await logs_of(left, nodes=2)
    assert (found.title, found.source) == ("Logs of 1 of 2 workers of t1", f"trial `t1`, {shown}")
    headings = [f"==> Worker {1 - left + 1} of 2 <==\n{NO_POD}", f"==> Worker {left + 1} of 2, t1-{left} <=="]
    assert all(heading in found.whole for heading in headings)
