"""Call the API of a cluster that can be unreachable for hours, without delaying callers; say why it can't be
used, and the fix: its kubeconfig, token, or another cluster behind it.

After a call without an answer, calls fail at once, but one after each delay of RETRY. Before the first call,
and again after each outage, the uid of the namespace kube-system has to be the known one: behind a kubeconfig
that points to another cluster, every experiment would look deleted.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import aiohttp

from k8s.api.client import (
    CALL_TIMEOUT,
    CONNECT_TIMEOUT,
    KubernetesClient,
    Measure,
    unmeasured,
)
from k8s.api.errors import ApiError, ClusterUnreachableError, UnreachableError
from k8s.api.paths import ServedVersions
from k8s.api.responses import network_errors
from k8s.retry import Retry
from k8s.sessions import by_kubeconfig

if TYPE_CHECKING:
    from kubernetes.aio.client import ApiClient

RETRY = Retry(base=5.0)  # of a cluster that doesn't answer
SILENCE = 10.0  # seconds without a byte until it counts as away; work items wait this long, once
OPEN_TIMEOUT = 15.0  # seconds to read a kubeconfig, which can run an exec plugin
IDLE = 60.0  # seconds without a call until an unused session is closed; no call takes as long
REMOTE_CALL = aiohttp.ClientTimeout(total=CALL_TIMEOUT, sock_connect=CONNECT_TIMEOUT, sock_read=SILENCE)
IDENTITY = "/api/v1/namespaces/kube-system"

# Gets the uid of kube-system, and returns the one that was stored for this cluster before.
Known = Callable[[str], Awaitable[str]]


class RemoteClient(KubernetesClient):
    """Raises ClusterUnreachableError while the cluster is unreachable, or must not be used.

    Args:
        kubeconfig: path; read on the first call, and again after an outage or a 401.
    """

    def __init__(
        self,
        name: str,
        kubeconfig: str,
        context: str,
        known: Known,
        measured: Measure = unmeasured,
    ) -> None:
        self.name, self._file, self._context, self._known = name, kubeconfig, context, known
        self._measured = measured
        self._versions = ServedVersions(partial(self._call, "GET"))
        self._session: ApiClient | None = None
        self._former: ApiClient | None = None  # a call can still be about to use it
        self._stamp = 0  # of the kubeconfig, when the session was opened
        self._opening = asyncio.Lock()
        self._is_verified = self._is_closed = False
        self._retry_at = 0.0  # after a failure
        self._used_at = 0.0
        self.seen: datetime | None = None  # when it last answered
        self.failure: ClusterUnreachableError | None = None  # of the last call

    async def close(self) -> None:
        """Close for good: later calls raise ClusterUnreachableError and open no session."""
        self._is_closed = True
        for session in (self._session, self._former):
            if session:
                await session.close()  # type: ignore[no-untyped-call]
        self._session = self._former = None

    async def close_when_idle(self) -> None:
        """Close for good after IDLE seconds without a call, or when cancelled."""
        try:
            while (left := self._used_at + IDLE - monotonic()) > 0:  # noqa: ASYNC110 - time, no event
                await asyncio.sleep(left)
        finally:
            await self.close()

    async def _api(self) -> "ApiClient":
        async with self._opening:
            if self._session is None and not self._is_closed:
                self._session = await self._opened()
            if self._session is None or self._is_closed:  # perhaps while it was being opened
                await self.close()
                raise self._away("its entry in `clusters:` was changed or removed")
            return self._session

    async def _opened(self) -> "ApiClient":
        try:
            self._stamp = _stamp(self._file)
            async with asyncio.timeout(OPEN_TIMEOUT):
                return await by_kubeconfig(self._file, self._context)
        except TimeoutError:
            raise self._away("the exec plugin of its kubeconfig returned no token in time") from None
        except Exception as error:  # noqa: BLE001 - of the file system, YAML, or the client's own
            # YAML errors quote the file, which holds a token.
            why = f"its kubeconfig {self._file} can't be used ({type(error).__name__})"
            fix = f"Check the file{f' and its context {self._context}' if self._context else ''}."
            raise self._away(why, fix) from None

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        *,
        limits: aiohttp.ClientTimeout | None = None,
        **how: Any,
    ) -> aiohttp.ClientResponse:
        self._used_at = monotonic()
        await self._admit()
        try:
            await self._verify()
            response = await super()._send(method, path, query, limits=limits or REMOTE_CALL, **how)
        except ClusterUnreachableError as error:
            raise self._failed(error) from None
        except UnreachableError as error:
            raise self._failed(self._away(str(error))) from error
        except ApiError as error:
            if error.status == 401:
                raise await self._unauthorized() from None
            self._answered()
            raise
        self._answered()
        return response

    async def _read(self, method: str, path: str, query: Mapping[str, Any] | None, **how: Any) -> bytes:
        try:
            return await super()._read(method, path, query, **how)
        except ClusterUnreachableError:
            raise
        except UnreachableError as error:  # in the middle of an answer
            raise self._failed(self._away(str(error))) from error

    async def _admit(self) -> None:
        """Raise the last failure, unless the next call is due; read a kubeconfig that has changed."""
        if self.failure is None:
            return
        if monotonic() < self._retry_at:
            raise self.failure
        self._retry_at = monotonic() + RETRY.seconds() + SILENCE  # others fail meanwhile
        if self._stamp != _stamp(self._file):
            await self._reopen()

    async def _verify(self) -> None:
        if self._is_verified:
            return
        uid = await self._uid()
        if await self._known(uid) != uid:
            raise self._away(
                "its kubeconfig points to another cluster than before (kube-system has another uid)",
                "Point it to the former cluster, or add the new one to `clusters:` under another name.",
            )
        self._is_verified = True
        self._answered()

    async def _uid(self) -> str:
        try:
            response = await super()._send("GET", IDENTITY, None, limits=REMOTE_CALL)
            with network_errors():
                return str(json.loads(await response.read())["metadata"]["uid"])
        except ApiError as error:
            if error.status == 401:
                raise
            fix = "Grant `get` of the namespace kube-system." if error.status == 403 else ""
            raise self._away(f"its namespace kube-system can't be read: {error}", fix) from None
        except (ValueError, KeyError, TypeError):
            raise self._away("its URL isn't that of an API server", "Check its kubeconfig.") from None

    def _answered(self) -> None:
        self.failure, self.seen = None, datetime.now(UTC)

    def _away(self, why: str, fix: str = "") -> ClusterUnreachableError:
        return ClusterUnreachableError(self.name, why, seen=self.seen, fix=fix)

    def _failed(self, error: ClusterUnreachableError) -> ClusterUnreachableError:
        self.failure, self._retry_at = error, monotonic() + RETRY.seconds()
        self._is_verified = False
        return error

    async def _reopen(self) -> None:
        """Let the next call read the kubeconfig again."""
        former, self._former, self._session = self._former, self._session, None
        if former:
            await former.close()  # type: ignore[no-untyped-call]

    async def _unauthorized(self) -> ClusterUnreachableError:
        """Let the next call read the kubeconfig again: its token can have been replaced."""
        await self._reopen()
        fix = "Put a valid token into its kubeconfig."
        return self._failed(self._away("the API server rejects the credentials (401)", fix))


def _stamp(file: str) -> int:
    """Return when the file was written; 0 if it can't be read. A mounted Secret is a link to a new file."""
    try:
        return Path(file).stat().st_mtime_ns
    except OSError:
        return 0
