"""The last pictures and videos of one trial (`/sweep show`), from the log of its reader
(`reader/pictures.py`), or why there are none.
"""

import asyncio
import binascii
import json
import logging
import re
from base64 import b64decode
from collections.abc import Iterable
from typing import Any

from bot.core.plan import SweepPlan
from bot.platform.slack.message import File
from bot.platform.slack.mrkdwn import code
from bot.sweep.charts.drawing import DrawingError, run_apart
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError, UnreachableError
from k8s.pods import READER, Pod

log = logging.getLogger(__name__)

MAX_PICTURES = 8
MAX_PARTS = 150  # of one picture
LOG_LINES = 500  # more than all parts of all pictures
MAX_LOG = 4 * 2**20  # bytes
READ_TIMEOUT = 10.0  # seconds
ENCODE_TIMEOUT = 60.0  # seconds of all pictures, on a busy node: a worker's loop waits for them


async def trial_pictures(
    trial: str, pods: Iterable[Pod], plan: SweepPlan, cluster: KubernetesClient, turn: asyncio.Lock
) -> list[File]:
    """Return them re-encoded; none if the pod is gone or can't be read. `turn`: held while one encodes."""
    ended = [each for each in pods if each.job == trial and not each.index and each.finished]
    if not ended or not plan.has_reader:
        return []
    pod = ended[-1]  # earlier ones were evicted
    options = {"container": READER, "tailLines": LOG_LINES, "limitBytes": MAX_LOG}
    try:
        async with asyncio.timeout(READ_TIMEOUT):
            text = await cluster.raw_log(plan.experiment_ref.namespace, pod.name, options)
    except (ApiError, UnreachableError, TimeoutError) as error:
        log.warning("no pictures of %s: %s", trial, error or "timeout")
        return []
    found = await asyncio.to_thread(read_pictures, text)
    files: list[File] = []
    try:
        async with asyncio.timeout(ENCODE_TIMEOUT), turn:
            for name, (step, content) in found.items():
                if file := await _file(trial, name, step, content):
                    files.append(file)
    except TimeoutError:
        log.warning("%d of %d pictures of %s took too long", len(found) - len(files), len(found), trial)
    return files


def no_pictures(trial: str, plan: SweepPlan, *, is_running: bool) -> str:
    """Return why there is nothing to show, for users."""
    if not plan.has_reader:
        return (
            "Pictures need `metrics: tensorboard`, and a sidecar in the trials' pods: "
            "an admin sets METRICS_READER_IMAGE."
        )
    if is_running:
        return f"Trial {code(trial)} is running. Its pictures can be shown when it has finished."
    return (
        f"Trial {code(trial)} has no pictures, or its pod was deleted. *Fix:* Log them with "
        '`writer.add_image("samples", image, step)`, or save PNG, JPEG, or GIF files of up to 1 MiB in the '
        "directory `artifacts` below `--tensorboard_dir`."
    )


def read_pictures(text: str) -> dict[str, tuple[int, bytes]]:
    """Return step and bytes of the complete pictures in a log, by name."""
    steps, totals = dict[str, int](), dict[str, int]()
    parts: dict[str, dict[int, bytes]] = {}
    for line in text.splitlines():
        try:
            part: Any = json.loads(line) if line.startswith('{"picture"') else {}
            name = str(part["picture"]).encode(errors="replace").decode()  # a file's can be no UTF-8
            number, total = int(part["part"]), int(part["parts"])
            data = b64decode(part["data"], validate=True)
            step = int(part["step"])
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError, binascii.Error):
            continue  # another line, or half of one
        if not 1 <= number <= total <= MAX_PARTS:
            continue
        if number == 1 and (
            name in parts or len(parts) < MAX_PICTURES
        ):  # a restarted reader prints all again
            steps[name], totals[name], parts[name] = step, total, {}
        if totals.get(name) == total:
            parts[name][number] = data
    return {
        name: (steps[name], b"".join(data for _, data in sorted(known.items())))
        for name, known in parts.items()
        if len(known) == totals[name]
    }


async def _file(trial: str, name: str, step: int, content: bytes) -> File | None:
    try:
        ending, made = await run_apart("bot.sweep.charts.reencode", content, ENCODE_TIMEOUT)
    except TimeoutError:  # an OSError
        raise
    except (DrawingError, OSError) as error:
        log.warning("the picture %r of %s can't be shown: %s", name, trial, error)
        return None
    place = f"-{step}" if step else ""
    slug = re.sub(r"[^\w.-]+", "-", re.sub(r"\.\w{3,4}$", "", name), flags=re.ASCII).strip("-")[:60]
    alt = f"Picture {name[:100]} of trial {trial}{f' at step {step:,}' if step else ''}"
    return File(name=f"{slug or 'picture'}{place}.{ending}", content=made, alt=alt)
