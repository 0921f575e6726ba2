"""Store small records in ConfigMaps, which survive the loss of Redis: one record per entry.

A write names the entries that it changes, so writers of different entries never overwrite each other. With
the version that it read, a write is rejected if anything in the ConfigMap has changed since.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from pydantic import TypeAdapter

from bot.core.stored_format import parse
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError
from k8s.objects import Manifest, Ref, config_map, ref_of

Value = TypeVar("Value")
LIMIT = "1048576 bytes"  # of all entries, as the API server's message names it


@dataclass(frozen=True)
class Entries(Generic[Value]):
    texts: Mapping[str, str]  # as they are stored
    values: Mapping[str, Value]
    damaged: Mapping[str, ValueError]  # why the others can't be read; they are left as they are
    version: str  # resourceVersion; "" if there is no ConfigMap


@dataclass(frozen=True)
class ConfigMapStore(Generic[Value]):
    """The entries of one ConfigMap. Methods raise ApiError and UnreachableError.

    `adapter` reads and writes values as JSON; without one, they are texts. `sparse`: leave out defaults.
    """

    cluster: KubernetesClient
    namespace: str
    name: str
    adapter: TypeAdapter[Value] | None = None
    sparse: bool = False
    labels: tuple[tuple[str, str], ...] = ()

    async def read(self) -> Entries[Value]:
        """Return all entries; one that can't be read doesn't keep others from being read."""
        found = await self.cluster.get(self._ref) or {"metadata": {"resourceVersion": ""}}
        texts: dict[str, str] = found.get("data") or {}
        values, damaged = dict[str, Value](), dict[str, ValueError]()
        for key, text in texts.items():
            try:
                values[key] = parse(self.adapter, text, key) if self.adapter else cast("Value", text)
            except ValueError as error:
                damaged[key] = error
        return Entries(texts, values, damaged, found["metadata"]["resourceVersion"])

    async def write(self, changes: Mapping[str, Value | None], version: str | None = None) -> str:
        """Store these entries, remove those that are None, and return the new version.

        Args:
            version: of the entries that the changes were made from. If others have changed since, ApiError
                is raised (stale or exists, or absent if the ConfigMap was deleted). None: write in any case.
        """
        data = {key: None if value is None else self._text(value) for key, value in changes.items()}
        manifest = config_map(self._ref, data, dict(self.labels))
        try:
            stored = await self._written(manifest, version)
        except ApiError as error:
            if LIMIT not in error.message:
                raise
            fix = f"Delete unneeded entries: `kubectl -n {self.namespace} edit configmap {self.name}`"
            text = f"ConfigMap {self.name} is full: Kubernetes limits one to {LIMIT}. *Fix:* {fix}"
            raise ApiError(error.status, error.reason, text) from None
        return str(stored["metadata"]["resourceVersion"])

    async def _written(self, manifest: Manifest, version: str | None) -> Manifest:
        if version is None:
            return await upsert(self.cluster, manifest)
        if not version:
            return await self.cluster.create(manifest)
        manifest["metadata"]["resourceVersion"] = version
        return await self.cluster.merge(self._ref, manifest)

    def _text(self, value: Value) -> str:
        if self.adapter is None:
            return str(value)
        return self.adapter.dump_json(value, exclude_defaults=self.sparse).decode()

    @property
    def _ref(self) -> Ref:
        return Ref("ConfigMap", self.namespace, self.name)


async def upsert(cluster: KubernetesClient, manifest: Manifest) -> Manifest:
    """Merge into the ConfigMap of this name, or create it, and return the result.

    Raises ApiError and UnreachableError.
    """
    try:
        return await cluster.merge(ref_of(manifest), manifest)
    except ApiError as error:
        if not error.absent:
            raise
    try:
        return await cluster.create(manifest)
    except ApiError as error:
        if not error.exists:  # another process created it in between
            raise
        return await cluster.merge(ref_of(manifest), manifest)
