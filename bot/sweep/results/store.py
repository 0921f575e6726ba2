"""Store the results of ended sweeps in the cluster, one ConfigMap per sweep, separate from its record.

They remain when Katib's objects, the pods, Redis, and the record are gone: retention empties the record's
ConfigMap but keeps this one, usually a few kilobytes.
"""

import asyncio
import binascii
import logging
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime

from bot.core.ids import SWEEP_ID
from bot.core.stored_format import cached, late_adapter
from bot.platform.storage.configmaps import upsert
from bot.sweep.results.models import Spent, SweepResults, dump, load, spent
from k8s.api.client import KubernetesClient
from k8s.objects import MANAGED_BY, Manifest, Ref, label_value

log = logging.getLogger(__name__)

RESULTS_LABEL = "sweepbot/results"  # the sweep's ID; not the sweep label, which selects records
SPACE_LABEL = "sweepbot/space"
RUNS_LABEL, PENDING, COMPLETE = "sweepbot/runs", "pending", "complete"  # whether MLflow has all runs
MONTH_LABEL = "sweepbot/ended"  # such as 2026-11, UTC
SPENT = "sweepbot/spent"  # annotation: `Spent` as JSON, to be summed without the results
KEY = "results"
_SPENT = late_adapter(Spent)
PAGE = 20  # ConfigMaps in one answer, of up to 1 MiB each


def ref(namespace: str, sweep_id: str) -> Ref:
    return Ref("ConfigMap", namespace, f"results-{sweep_id}")


class ResultsStore:
    """`namespace`: where the records are, too. Methods raise ApiError and UnreachableError."""

    def __init__(self, cluster: KubernetesClient, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace

    async def save(self, results: SweepResults) -> None:
        """Store the results; they replace earlier ones of an extended sweep."""
        stored = await asyncio.to_thread(dump, results)
        await upsert(self._cluster, self._config_map(results, stored))

    async def get(self, sweep_id: str) -> SweepResults | None:
        """Return the results; None if there are none. Raises ValueError if they can't be read."""
        if not SWEEP_ID.fullmatch(sweep_id):  # it becomes part of a URL
            return None
        found = await self._cluster.get(ref(self._namespace, sweep_id))
        text = (found.get("binaryData") or {}).get(KEY, "") if found else ""
        return await asyncio.to_thread(_parsed, text) if text else None

    async def of_space(self, space: str) -> AsyncGenerator[SweepResults]:
        """Yield the results of the sweeps of this space; unreadable ones are skipped."""
        async with aclosing(self.all(f",{SPACE_LABEL}={label_value(space)}")) as found:
            async for results in found:
                if results.space.name == space:
                    yield results

    async def pending(self) -> AsyncGenerator[str]:
        """Yield the IDs of the ended sweeps whose MLflow runs are still to be completed."""
        async with aclosing(self._stored(f"{RUNS_LABEL}={PENDING}")) as stored:
            async for each in stored:
                yield each["metadata"]["labels"][RESULTS_LABEL]

    async def all(self, more: str = "") -> AsyncGenerator[SweepResults]:
        """Yield the results of all ended sweeps, and skip unreadable ones. `more`: of the label selector."""
        async with aclosing(self._stored(f"{RESULTS_LABEL}{more}")) as stored:
            async for each in stored:
                if results := await _readable(each):
                    yield results

    async def spent(self, month: datetime) -> list[Spent]:
        """Return what each sweep used that last ended in this month, UTC; of an older version's, nothing."""
        async with aclosing(self._stored(f"{MONTH_LABEL}={_month(month)}")) as stored:
            texts = [each["metadata"].get("annotations", {}).get(SPENT) async for each in stored]
        return [one for text in texts if (one := cached(_SPENT, text))]

    async def _stored(self, labels: str) -> AsyncGenerator[Manifest]:
        kept = self._cluster.pages("ConfigMap", self._namespace, labels=labels, limit=PAGE)
        async with aclosing(kept) as pages:
            async for page, _ in pages:
                for each in page:
                    yield each

    def _config_map(self, results: SweepResults, stored: bytes) -> Manifest:
        address = ref(self._namespace, results.sweep)
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": address.name,
                "namespace": address.namespace,
                "labels": {
                    MANAGED_BY: "sweepbot",
                    RESULTS_LABEL: results.sweep,
                    SPACE_LABEL: label_value(results.space.name),
                    RUNS_LABEL: PENDING if results.runs_pending else COMPLETE,
                    MONTH_LABEL: _month(results.ended),
                },
                "annotations": {SPENT: _SPENT.dump_json(spent(results)).decode()},
            },
            "binaryData": {KEY: b64encode(stored).decode()},
        }


def _month(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m}"


async def _readable(manifest: Manifest) -> SweepResults | None:
    text = (manifest.get("binaryData") or {}).get(KEY, "")
    try:
        return await asyncio.to_thread(_parsed, text)
    except ValueError as error:
        log.warning("unreadable results in %s: %s", manifest["metadata"]["name"], error)
        return None


def _parsed(text: str) -> SweepResults:
    try:
        return load(b64decode(text, validate=True))
    except binascii.Error as error:
        raise ValueError(str(error)) from None
