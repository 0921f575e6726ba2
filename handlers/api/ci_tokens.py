"""Verify the tokens of CI jobs (OpenID Connect), as GitHub and GitLab sign them; `api.ci` says whose."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import jwt
from jwt.exceptions import PyJWTError

from bot.platform.config.api_access import CiJobs
from bot.platform.config.policy import Config
from bot.platform.runtime.audit import audit
from bot.text.wording import printable, shortened
from handlers.api.issuer_keys import IssuerKeys

log = logging.getLogger(__name__)

ALGORITHM = "RS256"  # the one that GitHub and GitLab use
LEEWAY = 30  # seconds between the clocks
MAX_TOKEN = 16 * 1024  # characters
MAX_LIFETIME = 24 * 3600  # seconds from a token's issue to its expiry
REQUIRED = ["iss", "aud", "exp", "iat", "sub"]
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
