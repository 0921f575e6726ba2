"""Choose the version of Kueue's API that the cluster serves.

Kueue 0.14 serves v1beta1. 0.15 to 0.19 serve both, with v1beta1 deprecated, and some of them reject patches
of admitted Workloads through v1beta1 (kueue#10594). What Sweepbot reads and patches has the same names in
both, except the priority class (`k8s.kueue`).
"""

from collections.abc import Awaitable, Callable

from k8s.api.errors import ApiError
from k8s.objects import Manifest

GROUP = "/apis/kueue.x-k8s.io"
WRITTEN = "v1beta1"  # in paths before the cluster was asked
KNOWN = ("v1beta2", "v1beta1")  # the first that is served


class KueueVersion:
    """Ask the cluster once, at the first request to Kueue, and again after a 404: an upgrade can remove one.

    Args:
        get: GETs a path and returns the object. Raises ApiError and UnreachableError.
    """

    def __init__(self, get: Callable[[str], Awaitable[Manifest]]) -> None:
        self._get, self._served = get, ""

    async def path(self, path: str) -> str:
        """Return the path in the version that is served. Raises UnreachableError."""
        if not path.startswith(f"{GROUP}/{WRITTEN}/"):
            return path
        self._served = self._served or await self._discovered()
        return path.replace(WRITTEN, self._served or WRITTEN, 1)

    def forget(self, path: str) -> None:
        """Discover again at the next request, if the path is one of Kueue's."""
        if path.startswith(f"{GROUP}/"):
            self._served = ""

    async def _discovered(self) -> str:
        """Return the version; "" if Kueue isn't installed, or discovery isn't allowed."""
        try:
            group = await self._get(GROUP)
        except ApiError as error:
            if error.outage or error.throttled:
                raise
            return ""
        served = {each.get("version") for each in group.get("versions") or ()}
        return next((version for version in KNOWN if version in served), "")
