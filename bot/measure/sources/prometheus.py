"""Query the HTTP API of Prometheus, Thanos, Mimir, or VictoriaMetrics, in parts if a query is too long, and
read the rows of its answers; refuse incomplete ones.
"""

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Generic, TypeVar

import aiohttp
from pydantic_core import from_json

from bot.measure.gpus.models import NoGpuDataError
from bot.measure.gpus.pod_owners import PodKey
from k8s.nodes.dcgm import device_of, gpu_of, model_of

T = TypeVar("T")

QUERY_TIMEOUT = aiohttp.ClientTimeout(total=100)  # seconds; Prometheus' own default is two minutes

Device = tuple[str, str, str, str]  # namespace, pod, id, model
Values = Mapping[float, float]  # by Unix seconds

SAMPLE_MAX_AGE = timedelta(minutes=10)
TOO_LONG = "too long query", "err-mimir-max-query-expression-size-bytes"  # in their errors
# Parameters of Thanos and VictoriaMetrics. Others ignore them, but Google's Managed Prometheus refuses these
# requests: `Unknown name "nocache": Cannot bind query parameter.`
EXTENSIONS = ("max_source_resolution", "nocache")
REFUSED = re.compile(rf"(?i)(?:unknown|unrecognized|unsupported)[^.;]{{0,40}}\b(?:{'|'.join(EXTENSIONS)})\b")
# Strings, and the names of all metrics in queries, with a brace if matchers follow.
SELECTORS = re.compile(
    r'"[^"\\]*(?:\\.[^"\\]*)*"|\b(?:DCGM_FI|container|kube|sweepbot)_\w+\b(?:\s*\{)?', re.DOTALL
)
MOST_SELECTORS = 40  # in one query
LONGEST_QUERY = 16384  # bytes; what VictoriaMetrics takes by default (-search.maxQueryLen)


class LongQueryError(NoGpuDataError):
    """The server takes no query of this length: VictoriaMetrics by default, Mimir by a tenant's limit."""


@dataclass(frozen=True)
class Row:
    labels: dict[str, str]
    value: float

    @property
    def pod(self) -> PodKey:
        """Return namespace and pod; scraped without honorLabels, they are `exported_…`."""
        get = self.labels.get
        return get("exported_namespace") or get("namespace", ""), get("exported_pod") or get("pod", "")

    @property
    def gpu(self) -> str:
        return gpu_of(self.labels)

    @property
    def device(self) -> Device:
        return *self.pod, device_of(self.labels), self.model

    @property
    def model(self) -> str:
        return model_of(self.labels)

    @property
    def host(self) -> str:
        """Return the host; dcgm-exporter renamed the label; without either it is the instance."""
        labels = self.labels
        return labels.get("Hostname") or labels.get("hostname") or labels.get("instance", "")


class Prometheus:
    """Client of Prometheus, Thanos, Mimir, or VictoriaMetrics. Methods raise NoGpuDataError.

    Args:
        labels: matchers that all series must have, such as `cluster="lab"`.
    """

    _longest = math.inf  # bytes of a query that this server takes
    _extended = True  # until it refuses EXTENSIONS

    def __init__(self, url: str, token: str = "", labels: str = "") -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._url, self._rules_url = f"{url}/api/v1/query", f"{url}/api/v1/rules?type=alert"
        self._range_url, self._labels = f"{url}/api/v1/query_range", labels
        self._web = aiohttp.ClientSession(headers=headers, timeout=QUERY_TIMEOUT, trust_env=True)

    async def close(self) -> None:
        await self._web.close()

    async def query(self, query: str, at: datetime) -> list[Row]:
        """Return the instant vector at that time, without NaN and infinite values."""
        return await asyncio.to_thread(_vector, *await self._answer(query, at))

    async def query_each(
        self, query: Callable[..., str], names: Collection[str] | None, at: datetime
    ) -> list[Row]:
        """Return the rows of `query` for all names."""
        return await self.in_parts(partial(self.query, at=at), query, names)

    async def in_parts(
        self,
        ask: Callable[[str], Awaitable[list[T]]],
        query: Callable[..., str],
        names: Collection[str] | None,
    ) -> list[T]:
        """Ask for all names, in one query unless it is too long for the server: see `parts_of`.

        In parts, Prometheus takes twice the CPU time and more, and doesn't need them.
        """
        while True:
            longest = self._longest  # queries that run at once are all refused
            parts = await asyncio.to_thread(parts_of, query, names, longest)  # slow: 10,000 names
            try:
                return [row for part in parts for row in await ask(part)]
            except LongQueryError:
                if longest <= LONGEST_QUERY:
                    raise
                self._longest = LONGEST_QUERY - MOST_SELECTORS * len(self._labels)

    async def at_both(self, query: str, first: datetime, second: datetime) -> list[tuple[Row, Values]]:
        """Return each series' values at two times, also NaN and infinite ones; rows have no values.

        In one query, Prometheus reads and writes the labels once.
        """
        form = {
            "query": query,
            "start": f"{first.timestamp():.3f}",
            "end": f"{second.timestamp():.3f}",
            "step": f"{(second - first).total_seconds():g}",
            "max_source_resolution": "0s",  # Thanos would take samples of 5 minutes for such a step
        }
        return await asyncio.to_thread(_series, *await self._post(self._range_url, form))

    async def sample_times(self, query: str, at: datetime) -> list[tuple[Row, list[float]]]:
        """Return the sample times of each series of a range query, in Unix seconds; rows have no values."""
        found = await asyncio.to_thread(_series, *await self._answer(query, at))
        return [(row, [*values]) for row, values in found]

    async def alerts(self) -> set[str] | None:
        """Return the names of all loaded alerts; None if the server doesn't say."""
        try:
            async with self._web.get(self._rules_url) as answer:
                if answer.status != 200:
                    return None
                groups = json.loads(await answer.read())["data"]["groups"]
                return {str(rule["name"]) for group in groups for rule in group["rules"]}
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(error) from error
        except (KeyError, RecursionError, TypeError, ValueError):
            return None

    async def _answer(self, query: str, at: datetime) -> tuple[int, bytes]:
        """Return status and body, which is decoded in a thread: with 10,000 GPUs it is megabytes."""
        return await self._post(self._url, {"query": query, "time": f"{at.timestamp():.3f}"})

    async def _post(self, url: str, form: Mapping[str, str]) -> tuple[int, bytes]:
        # Servers keep answers for a range, but an hour's last samples can come later. Without `nocache`,
        # VictoriaMetrics would also answer for half a minute ago instead of now.
        query = narrowed(form["query"], self._labels)
        data, headers = {**form, "query": query, "nocache": "1"}, {"Cache-Control": "no-store"}
        if not (extended := self._extended):
            data = {name: value for name, value in data.items() if name not in EXTENSIONS}
        try:
            async with self._web.post(url, data=data, headers=headers) as answer:
                status, body = answer.status, await answer.read()
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is one
            raise _unreachable(error) from error
        if extended and status == 400 and REFUSED.search(body.decode(errors="replace")):
            self._extended = False
            return await self._post(url, form)
        return status, body


def narrowed(query: str, labels: str) -> str:
    """Put matchers into each selector of a query."""

    def put(found: re.Match[str]) -> str:
        text = found[0]
        if text.startswith('"'):
            return text
        return f"{text}{labels}," if text.endswith("{") else f"{text}{{{labels}}}"

    return SELECTORS.sub(put, query) if labels else query


def parts_of(query: Callable[..., str], names: Collection[str] | None, longest: float) -> list[str]:
    """Return queries that together are for all names, each at most `longest` bytes if there are several.

    `query`: by a part of the names; None is for all that exist. No series may belong to two names.
    """
    text = query(names)
    if names is None or len(names) < 2 or len(text.encode()) <= longest:
        return [text]
    some, half = list(names), len(names) // 2
    return [*parts_of(query, some[:half], longest), *parts_of(query, some[half:], longest)]


def _unreachable(error: Exception) -> NoGpuDataError:
    return NoGpuDataError(f"Prometheus doesn't answer: {str(error) or type(error).__name__}")


def _vector(status: int, text: bytes) -> list[Row]:
    rows = _read(status, text, lambda each: Row(dict(each["metric"]), float(each["value"][1])))
    return [row for row in rows if math.isfinite(row.value)]


def _series(status: int, text: bytes) -> list[tuple[Row, Values]]:
    return _read(
        status,
        text,
        lambda each: (
            Row(dict(each["metric"]), 0.0),
            {float(time): float(value) for time, value in each["values"]},
        ),
    )


def _missing(body: dict[str, Any]) -> str:
    """Return why an answer lacks series, or "": Thanos and remote reads warn, VictoriaMetrics has a flag.

    What a query's own text causes starts with `PromQL`. Without some series, allocated GPUs would look free.
    """
    warnings = map(str, body.get("warnings") or ())
    flagged = "some storage nodes are unavailable" if body.get("isPartial") else ""
    return next((each for each in warnings if not each.startswith("PromQL ")), flagged)


def _read(status: int, text: bytes, convert: Callable[[Any], T]) -> list[T]:
    """Return each series of a successful answer, converted. Raises NoGpuDataError for any other answer."""
    try:
        body = from_json(text)  # half the time of json.loads
        if body["status"] == "success":
            result = [convert(each) for each in body["data"]["result"]]
            if missing := _missing(body):
                raise NoGpuDataError(f"Prometheus' data is incomplete: {missing[:300]}")
            return result
        error = str(body["error"])
    except (ValueError, LookupError, TypeError, RecursionError):  # a proxy's page, a login form
        error = text.decode(errors="replace").strip()
    refused = LongQueryError if any(each in error for each in TOO_LONG) else NoGpuDataError
    raise refused(f"Prometheus answered {status}: {error[:300]}")


class Recent(Generic[T]):
    """What rarely changes and is expensive to query, such as scrape intervals and GPU models."""

    def __init__(self) -> None:
        self._known: tuple[datetime, T] | None = None

    async def get(self, at: datetime, measure: Callable[[], Awaitable[T]]) -> T:
        """Return what was measured within SAMPLE_MAX_AGE before `at`, or else measure it."""
        if self._known is None or not timedelta(0) <= at - self._known[0] < SAMPLE_MAX_AGE:
            self._known = at, await measure()
        return self._known[1]

    async def renew(self, at: datetime, measure: Callable[[], Awaitable[T]]) -> T:
        """Measure, unless that was done for `at`."""
        if self._known is None or self._known[0] != at:
            self._known = at, await measure()
        return self._known[1]
