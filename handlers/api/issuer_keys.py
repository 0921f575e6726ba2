"""The public keys with which issuers of CI tokens sign, by OpenID Connect's discovery.

Anyone can send a token with any key id, so an unknown one is looked for at most once a minute.
"""

import asyncio
import json
import logging
from time import monotonic
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout
from jwt import PyJWK, PyJWKSet
from jwt.exceptions import PyJWTError

log = logging.getLogger(__name__)

MAX_AGE = 3600.0  # seconds; then they are read again
MIN_INTERVAL = 60.0  # seconds between two reads
KEPT = 24 * 3600.0  # seconds that keys are used while the issuer can't be read
TIMEOUT = ClientTimeout(total=5)
MAX_SIZE = 256 * 1024  # bytes of an answer; GitLab's has a few kB
DISCOVERY = "/.well-known/openid-configuration"


class UnreadableKeysError(Exception):
    """An issuer's keys couldn't be read for long."""


class IssuerKeys:
    """The keys of one issuer. `issuer`: its URL."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer
        self._keys: dict[str, PyJWK] = {}
        self._read_at = self._tried_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    async def get(self, key_id: str) -> PyJWK | None:
        """Return the key with this id, of the last read or of a new one; None if there is none.

        Raises UnreadableKeysError.
        """
        age = monotonic() - self._read_at
        if (key_id not in self._keys or age > MAX_AGE) and monotonic() - self._tried_at > MIN_INTERVAL:
            self._tried_at = monotonic()
            self._reading = asyncio.create_task(self._read())
        if key_id not in self._keys and self._reading:
            await asyncio.wait([self._reading])
        if monotonic() - self._read_at > KEPT:
            raise UnreadableKeysError(self._issuer)
        return self._keys.get(key_id)

    async def _read(self) -> None:
        try:
            async with ClientSession(timeout=TIMEOUT, trust_env=True) as session:
                found = await _json(session, self._issuer.rstrip("/") + DISCOVERY)
                keys = PyJWKSet.from_dict(await _json(session, _keys_url(found, self._issuer))).keys
        except (ClientError, TimeoutError, ValueError, TypeError, KeyError, PyJWTError) as error:
            log.warning("can't read the keys of %s: %r", self._issuer, error)
            return
        self._keys = {each.key_id: each for each in keys if each.key_id and _signs(each)}
        self._read_at = monotonic()


def _keys_url(found: dict[str, Any], issuer: str) -> str:
    """Raises ValueError."""
    url, scheme = str(found.get("jwks_uri")), issuer.partition("://")[0]
    if found.get("issuer") != issuer or not url.startswith(f"{scheme}://"):
        raise ValueError("its configuration is about another issuer, or its keys aren't at https")
    return url


def _signs(key: PyJWK) -> bool:
    """Return whether it is a public key for the one algorithm that is accepted."""
    return key.key_type == "RSA" and key.public_key_use in {None, "sig"} and key.algorithm_name == "RS256"


async def _json(session: ClientSession, url: str) -> Any:
    """Raises ClientError, TimeoutError, and ValueError."""
    async with session.get(url, allow_redirects=False, raise_for_status=True) as answer:
        content = b""
        while part := await answer.content.read(MAX_SIZE + 1 - len(content)):
            content += part
    if answer.status != 200 or len(content) > MAX_SIZE:
        raise ValueError(f"{url} answers with status {answer.status} and {len(content)} bytes")
    found = json.loads(content)
    if not isinstance(found, dict):
        raise TypeError(f"{url} answers with no JSON object")
    return found
