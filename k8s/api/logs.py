"""Read the end of a container's log, limited in time, lines, and size, or say why there is none: a lost node
must not block the caller.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime

from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError, UnreachableError
from k8s.objects import timestamp

LOG_LINES = 20
WHOLE_LOG = 10_000  # lines; a longer log has to be read with kubectl
LOG_CHARACTERS = 8000  # per LOG_LINES lines: a line can be a whole progress bar
LOG_TIMEOUT = 5.0  # seconds
SILENT_NODE = "the node isn't responding"


async def has_line_since(
    cluster: KubernetesClient, namespace: str, pod: str, container: str, at: datetime
) -> bool:
    """Return whether the container has logged since; False if its log can't be read."""
    try:
        async with asyncio.timeout(LOG_TIMEOUT):
            return bool(await cluster.log(namespace, pod, container, tail=1, since=timestamp(at)))
    except (ApiError, UnreachableError, TimeoutError):
        return False


async def tail(
    cluster: KubernetesClient,
    namespace: str,
    pod: str,
    container: str,
    lines: int = LOG_LINES,
    *,
    previous: bool = False,
    clean: Callable[[str], str],
) -> str:
    """Return the last `lines`, or the error in parentheses: it must not block reporting a trial's end.

    Args:
        clean: masks secrets. It runs before the log is cut, which could leave half a secret, and in a
            thread, because a log can have 1 MiB.
    """
    try:
        async with asyncio.timeout(LOG_TIMEOUT):
            log = await cluster.log(namespace, pod, container, tail=lines, previous=previous)
    except (ApiError, UnreachableError, TimeoutError) as error:
        return clean(f"(log unavailable: {str(error) or SILENT_NODE})")
    shown = await asyncio.to_thread(clean, log)
    return shown.strip()[-LOG_CHARACTERS * lines // LOG_LINES :]
