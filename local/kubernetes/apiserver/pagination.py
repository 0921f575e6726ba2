"""Paginate lists with `limit` and `continue`. All pages are of the same version."""

import itertools
from collections.abc import Mapping

from local.kubernetes.apiserver.kinds import Object, refusal

KEPT = 100  # pages whose remaining items are kept
EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. "
    "You can start a new list without the continue parameter, or use the continue token in this response to "
    "retrieve the remainder of the results. Continuing with the provided token results in an inconsistent "
    "list - objects that were created, modified, or deleted between the time the first chunk was returned "
    "and now may show up in the list."
)


class Pages:
    def __init__(self) -> None:
        self._rests: dict[str, tuple[str, list[Object]]] = {}
        self._numbers = itertools.count(1)

    def rest(self, token: str) -> tuple[str, list[Object]]:
        """Return the list's version and remaining items. Raises Refused 410."""
        if token not in self._rests:
            raise refusal(410, EXPIRED, "Expired")
        return self._rests[token]

    def page(
        self, version: str, items: list[Object], query: Mapping[str, str]
    ) -> tuple[Object, list[Object]]:
        """Return the metadata and the items of one page."""
        limit = int(query.get("limit") or 0) or len(items)
        meta: Object = {"resourceVersion": version}
        if rest := items[limit:]:
            meta["continue"] = token = f"{version}.{next(self._numbers)}"
            self._rests[token] = version, rest
            for old in list(self._rests)[:-KEPT]:
                del self._rests[old]
            if not query.get("labelSelector") and not query.get("fieldSelector"):
                meta["remainingItemCount"] = len(rest)
        return meta, items[:limit]
