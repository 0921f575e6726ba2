"""The reader from its start to its report, as a process with Katib's database manager of the local world."""

import asyncio
import json
import os
import re
import socket
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from local.katib.db_manager import DbManager
from local.katib.metrics import MetricsStore, Reported
from reader.__main__ import BUFFERED
from reader.katib import ReportError, replace_rows
from tests.reader.event_files import event, field, header, scalar

ROWS = [("2026-11-22T13:00:00.000000Z", "loss", "0.5"), ("2026-11-22T13:00:00.000001Z", "loss", "nan")]


@pytest.fixture
async def manager():
    made = DbManager(MetricsStore())
    await made.start()
    yield made
    await made.close()


@asynccontextmanager
async def reader(folder: Path, address: str, *more: str, **env: str):
    """Start it, and end it with SIGTERM once it has printed a line or is ready."""
    words = [str(folder), "--metric=loss", "--metric=accuracy", f"--katib={address}", *more]
    made = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "reader", *words),
        cwd=Path(__file__).parents[2],
        env={"TRIAL": "lr-otter-1", **env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield made
    finally:
        if made.returncode is None:
            made.kill()
            await made.wait()


async def ended(process) -> tuple[int, list[str]]:
    process.terminate()
    printed, _ = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, printed.decode().splitlines()


def reported(manager):
    return manager._metrics._logs


async def test_new_points_are_printed_and_the_report_replaces_what_was_there(manager, tmp_path):
    manager._metrics.record("lr-otter-1", [Reported("9", 1, "loss")])  # of an evicted pod
    file = tmp_path / "events.out.tfevents.1"
    file.write_bytes(scalar("loss", 0.5, 1, 1.0) + scalar("grad", 7, 1) + scalar("loss", 2, 2, 2.0))
    async with reader(tmp_path, manager.address, "--rungs=1,3") as process:
        first = json.loads(await process.stdout.readline())
        with file.open("ab") as more:
            more.write(scalar("loss", 1, 3, 3.0) + scalar("accuracy", 0.25, 3, 3.0))
        code, lines = await ended(process)
    assert first == {"metric": "loss", "points": [[1, 0.5, 1.0, 0.5, 0.5], [2, 2.0, 2.0, 0.5, 2.0]]}
    assert [json.loads(line)["points"] for line in lines] == [
        [[1, 7.0, 1.0, 7.0, 7.0]],  # of another tag, which isn't reported
        [[3, 1.0, 3.0, 0.5, 2.0]],
        [[3, 0.25, 3.0, 0.25, 0.25]],
    ]
    rows = [("0.5", 1.0, "loss"), ("2.0", 2.0, "loss"), ("1.0", 3.0, "loss"), ("0.25", 3.0, "accuracy")]
    assert (code, reported(manager)) == (0, {"lr-otter-1": [Reported(*row) for row in rows]})


async def test_file_that_stays_empty_is_named_once_until_there_are_values(manager, tmp_path):
    """As tensorboardX leaves it for two minutes."""
    file = tmp_path / "events.out.tfevents.1"
    file.touch()
    os.utime(file, (1, 1))
    async with reader(tmp_path, manager.address) as process:
        said = (await process.stdout.readline()).decode()
        assert said == f"{BUFFERED}\n"
        file.write_bytes(scalar("loss", 1, 1))
        assert json.loads(await process.stdout.readline())["metric"] == "loss"
        assert await ended(process) == (0, [])


@pytest.mark.slow
async def test_large_events_and_many_scalars_raise_no_memory(manager, tmp_path):
    """Histograms of 1 MiB as holes in the file, so that they need no disk."""
    message = event(1, field(1, b"weights") + field(5, b"\0" * 2**20))
    head = header(len(message)) + message[: -(2**20)]
    with (tmp_path / "events.out.tfevents.1").open("wb") as file:
        for step in range(1, 257):
            file.write(b"".join(scalar("loss", 1 / step, step, float(step)) for _ in range(400)) + head)
            file.seek(2**20 + 4, os.SEEK_CUR)
        file.write(scalar("loss", 7, 257, 257.0))
        assert file.tell() > 2**28
    async with reader(tmp_path, manager.address) as process:
        lines, step = [], 0
        while step < 257:
            lines.append(json.loads(await process.stdout.readline()))
            step = lines[-1]["points"][-1][0]
        status = await asyncio.to_thread(Path(f"/proc/{process.pid}/status").read_text)
        assert int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) < 28 * 1024
        assert await ended(process) == (0, [])
    assert reported(manager)["lr-otter-1"][-1].value == "7.0"


@pytest.mark.parametrize("worker", ["1", "worker"])
async def test_another_worker_reads_and_reports_nothing(manager, tmp_path, worker):
    (tmp_path / "events.out.tfevents.1").write_bytes(scalar("loss", 1, 1))
    async with reader(tmp_path, manager.address, f"--ready={tmp_path / 'ready'}", WORKER=worker) as process:
        while not (tmp_path / "ready").exists():  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.01)
        assert await ended(process) == (0, [])
    assert reported(manager) == {}


async def test_training_without_a_value_reports_no_rows(manager, tmp_path):
    async with reader(tmp_path, manager.address, f"--ready={tmp_path / 'ready'}", WORKER="0") as process:
        while not (tmp_path / "ready").exists():  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.01)
        assert await ended(process) == (0, [])
    assert reported(manager) == {}


@pytest.mark.parametrize(("trial", "why"), [("t", "rejected the call"), ("", "Is Katib's webhook down?")])
async def test_report_that_fails_says_why_and_exits_with_1(manager, tmp_path, trial, why):
    manager.away = True
    (tmp_path / "events.out.tfevents.1").write_bytes(scalar("loss", 1, 1))
    async with reader(tmp_path, manager.address, "--grace=1", TRIAL=trial) as process:
        assert await process.stdout.readline()
        code, [line] = await ended(process)
    assert (code, why.lower() in line.lower()) == (1, True)


async def test_report_is_tried_again_until_the_database_is_back(manager, tmp_path):
    manager.away = True
    (tmp_path / "events.out.tfevents.1").write_bytes(scalar("loss", 1, 1))
    async with reader(tmp_path, manager.address) as process:
        assert await process.stdout.readline()
        tries, answer = [], manager._answer

        def later(*call):
            tries.append(call)
            manager.away = len(tries) < 2
            return answer(*call)

        manager._answer = later
        assert await ended(process) == (0, [])
    assert [row.value for row in reported(manager)["lr-otter-1"]] == ["1.0"]


async def test_rows_arrive_whole_and_in_order(manager):
    await asyncio.to_thread(replace_rows, manager.address, "t", ROWS * 100)
    assert [(row.metric, row.value) for row in reported(manager)["t"]] == [
        ("loss", "0.5"),
        ("loss", "nan"),
    ] * 100


HOSTILE = {
    "a frame of 16 MiB": b"\xff\xff\xff" + b"\0" * 6,
    "another protocol": b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"\0" * 20_000,
    "the end of the connection": b"",
    "the end of the call": b"\0\0\4\3\0\0\0\0\1\0\0\0\1",
    "trailers only": b"\0\0\0\1\5\0\0\0\1",
}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE)
async def test_answer_that_confirms_nothing_is_an_error(answer):
    async def serve(_, writer):
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with pytest.raises((ReportError, ConnectionError)):
        await asyncio.to_thread(replace_rows, address, "t", ROWS)
    server.close()


def test_database_that_does_not_answer_is_an_error_in_time():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(TimeoutError):
            replace_rows(address, "t", ROWS, seconds=0.1)
