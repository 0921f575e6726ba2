"""The collector of TensorBoard events, on event files as trainings write them."""

import asyncio

import pytest
from tensorboardX import SummaryWriter

from local.katib.collector import Collectors
from local.katib.metrics import MetricsStore

INSIDE = "/var/log/katib/tfevent/"
MOUNTS = [{"name": "metrics-volume", "mountPath": INSIDE}]
MAIN = {"name": "main", "args": [f"python train.py && echo completed > {INSIDE}$$$$.pid"]}


class Pod:
    """A trial's pod at the end of its training, before the collector reads it."""

    def __init__(self, folder, metric="loss"):
        self.folder, self.metrics, self.log, self.metric = folder, MetricsStore(), [], metric
        args = ["-t", "sweep-1", "-m", metric, "-o-type", "minimize", "-s-db", "db:6789", "-path", INSIDE]
        self.container = {"name": "metrics-collector", "args": args, "volumeMounts": MOUNTS}

    def write(self, values, below=""):
        with SummaryWriter(str(self.folder / below), write_to_disk=True) as writer:
            for step, (tag, value) in enumerate(values):
                writer.add_scalar(tag, value, step, walltime=1000 + step)

    def end(self, marker="completed"):
        if marker:
            (self.folder / "7.pid").write_text(f"{marker}\n")
        ended = (loop := asyncio.get_running_loop()).create_future()
        loop.call_later(0.01, ended.set_result, 0 if marker else 1)
        return ended

    async def collect(self, ended, start_seconds=0.0):
        pod = {"spec": {"containers": [MAIN, self.container]}}
        volumes = {"metrics-volume": self.folder}
        started = {"main": ended} if ended else {}
        collectors = Collectors(self.metrics)
        collectors.start_seconds = start_seconds
        return await collectors.events(pod, self.container, volumes, self.log.append, started)

    def observed(self):
        [found] = self.metrics.observation("sweep-1", self.metric)["metrics"]
        return found["min"], found["max"], found["latest"]


async def test_collector_reads_nothing_before_the_training_ends(tmp_path):
    pod = Pod(tmp_path)
    ended = asyncio.get_running_loop().create_future()
    collecting = asyncio.create_task(pod.collect(ended))
    await asyncio.sleep(0.01)
    pod.write([("loss", 0.5)])
    assert pod.metrics.observation("sweep-1", "loss") is None
    pod.end()
    ended.set_result(0)
    assert await collecting == 0
    assert pod.observed() == ("0.5",) * 3


@pytest.mark.parametrize("starts", ["too late", "long before the collector is ready"])
async def test_collector_fails_if_the_training_does_not_run_when_it_looks(tmp_path, starts):
    pod = Pod(tmp_path)
    pod.write([("loss", 0.5)])
    late = starts == "too late"
    assert await pod.collect(None if late else pod.end(), 0 if late else 0.1) == 1
    assert "Unable to find main pid" in pod.log[-1]


@pytest.mark.parametrize("marker", ["", "early-stopped"])
async def test_collector_without_the_marker_reports_nothing_and_fails(tmp_path, marker):
    pod = Pod(tmp_path)
    pod.write([("loss", 0.5)])
    assert await pod.collect(pod.end(marker)) == 1
    assert pod.metrics.observation("sweep-1", "loss") is None


@pytest.mark.parametrize(
    ("tag", "below", "metric", "found"),
    [
        ("loss", "", "loss", True),
        ("loss_aux", "", "loss", True),  # a tag only needs the metric as its prefix
        ("val/loss", "", "val/loss", False),  # the part before the slash is a folder
        ("loss", "val", "val/loss", True),
        ("loss", "val", "loss", True),
        ("accuracy", "", "loss", False),
    ],
)
async def test_collector_matches_tags_to_metrics(tmp_path, tag, below, metric, found):
    pod = Pod(tmp_path, metric)
    pod.write([(tag, 0.5)], below)
    assert await pod.collect(pod.end()) == 0
    assert pod.observed() == (("0.5",) * 3 if found else ("unavailable",) * 3)


async def test_collector_reports_min_max_and_latest_once_at_the_end_or_that_there_are_none(tmp_path):
    pod = Pod(tmp_path)
    assert await pod.collect(pod.end()) == 0
    assert pod.observed() == ("unavailable",) * 3
    pod.write([("loss", 0.5), ("accuracy", 0.25), ("loss", 0.125), ("loss", 0.25)])
    assert await pod.collect(pod.end()) == 0
    assert pod.observed() == ("0.125", "0.5", "0.25")
    assert pod.log[-1] == "In sweep-1 3 metrics will be reported."


async def test_collector_reads_a_truncated_file_to_its_cut(tmp_path):
    pod = Pod(tmp_path)
    pod.write([("loss", 0.5), ("loss", 0.25)])
    (path,) = tmp_path.glob("*tfevents*")
    path.write_bytes(path.read_bytes()[:-5])
    assert await pod.collect(pod.end()) == 0
    assert pod.observed() == ("0.5",) * 3
