"""What one person's file costs the others."""

import asyncio
import threading

import pytest

from bot.core.errors import UserError
from bot.platform.runtime.parser_thread import run_in_parser_thread
from bot.sweep.builds.pyproject import toml


async def test_parser_thread_does_not_block_the_event_loop():
    runs, text = 0, "".join(f"[table-{n}]\n" for n in range(20_000))

    async def others():
        nonlocal runs
        while True:
            runs += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    assert len(await run_in_parser_thread(toml, text, "uv.lock")) == 20_000
    task.cancel()
    assert runs > 10


async def test_parser_thread_reads_files_one_at_a_time_and_raises_errors_in_the_caller():
    threads = await asyncio.gather(*(run_in_parser_thread(threading.get_ident) for _ in range(5)))
    assert len(set(threads)) == 1
    assert threads[0] != threading.get_ident()
    with pytest.raises(UserError, match=r"^uv.lock is not valid TOML"):
        await run_in_parser_thread(toml, "[", "uv.lock")


async def test_parser_thread_rejects_slow_files_without_delaying_others(monkeypatch):
    monkeypatch.setattr("bot.platform.runtime.parser_thread.DEADLINE", 0.05)
    end = threading.Event()
    with pytest.raises(UserError, match=r"^Reading the file took more than 0.05 s\. \*Fix:\*"):
        await run_in_parser_thread(end.wait)
    monkeypatch.setattr("bot.platform.runtime.parser_thread.DEADLINE", 60)
    assert await run_in_parser_thread(len, "abc") == 3
    end.set()
