"""Verify the tokens of CI jobs (OpenID Connect), as GitHub and GitLab sign them; `api.ci` says whose. The
issuers' public keys are found by discovery.

Anyone can send a token with any key id, so an unknown one is looked for at most once a minute.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from time import monotonic
from typing import Any

import jwt
from aiohttp import ClientError, ClientSession, ClientTimeout
from jwt import PyJWK, PyJWKSet
from jwt.exceptions import PyJWTError

from bot.platform.config.api_access import CiJobs
from bot.platform.config.policy import Config
from bot.platform.runtime.audit import audit
from bot.text.wording import printable, shortened

log = logging.getLogger(__name__)

ALGORITHM = "RS256"  # the one that GitHub and GitLab use
LEEWAY = 30  # seconds between the clocks
MAX_TOKEN = 16 * 1024  # characters
MAX_LIFETIME = 24 * 3600  # seconds from a token's issue to its expiry
REQUIRED = ["iss", "aud", "exp", "iat", "sub"]
MAX_AGE = 3600.0  # seconds; then an issuer's keys are read again
MIN_INTERVAL = 60.0  # seconds between two reads
KEPT = 24 * 3600.0  # seconds that keys are used while the issuer can't be read
TIMEOUT = ClientTimeout(total=5)
MAX_SIZE = 256 * 1024  # bytes of an answer; GitLab's has a few kB
DISCOVERY = "/.well-known/openid-configuration"
RUNS = ("run_id", "pipeline_id")  # claims that tell one run of a job from the others


@dataclass(frozen=True, kw_only=True)
class CiJob:
    rule: CiJobs  # that admits it
    id: str  # the same for all tokens of one run
    subject: str  # for the audit


class CiTokens:
    def __init__(self) -> None:
        self._keys: dict[str, IssuerKeys] = {}

    async def verified(self, token: str, config: Config) -> CiJob | None:
        """Return the job whose token this is; None if it isn't valid, or isn't one that `api.ci` admits.

        Raises UnreadableKeysError.
        """
        rules = config.api.ci
        if not rules or len(token) > MAX_TOKEN or token.count(".") != 2:
            return None
        try:
            claims = await self._claims(token, rules)
        except (PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            log.debug("refused a token of CI: %r", error)
            return None
        if claims is None:
            return None
        subject = shortened(printable(str(claims["sub"])))
        rule = next((each for each in rules if each.admits(claims)), None)
        if rule is None:
            audit.info("ci=%r: token admitted by no rule of api.ci", subject)
            return None
        run = next((str(claims[each]) for each in RUNS if each in claims), "")
        about = "\n".join([rule.name, rule.issuer, str(claims["sub"]), run])
        return CiJob(rule=rule, id=f"ci-{sha256(about.encode()).hexdigest()}", subject=subject)

    async def _claims(self, token: str, rules: tuple[CiJobs, ...]) -> Mapping[str, Any] | None:
        """Return the verified claims; None if the issuer or its key is unknown."""
        header = jwt.get_unverified_header(token)
        issuer = jwt.decode(token, options={"verify_signature": False}).get("iss")
        audiences = [each.audience for each in rules if each.issuer == issuer]
        key_id = header.get("kid")
        if header.get("alg") != ALGORITHM or not audiences or not isinstance(key_id, str):
            return None
        keys = self._keys.setdefault(str(issuer), IssuerKeys(str(issuer)))
        if (key := await keys.get(key_id)) is None:
            return None
        options = {"require": REQUIRED, "enforce_minimum_key_length": True}
        claims: dict[str, Any] = jwt.decode(
            token,
            key.key,
            algorithms=[ALGORITHM],
            audience=audiences,
            issuer=str(issuer),
            leeway=LEEWAY,
            options=options,  # type: ignore[arg-type]
        )
        return claims if claims["exp"] - claims["iat"] <= MAX_LIFETIME else None


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
    return key.key_type == "RSA" and key.public_key_use in {None, "sig"} and key.algorithm_name == ALGORITHM


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
