"""Which CI jobs can call the HTTP API without a personal token, by issuer, audience, and claims of theirs:
`api:` of the configuration file. Pure.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator

from bot.platform.config.rules import Key, Matching, Name, Problem
from bot.platform.config.section import Named, Section
from bot.platform.config.value_types import (
    NAMESPACE_NAME,
    AmountText,
    Channel,
    Labels,
    Member,
    TeamName,
    Text,
)
from bot.text.wording import listed

ISSUER = re.compile(r"https://[A-Za-z0-9.-]+(:\d{1,5})?(/[A-Za-z0-9._~/-]*)?")
AUDIENCE = re.compile(r"[!-~]{1,200}")
EXAMPLE = (
    "{nightly: {issuer: https://gitlab.com, audience: https://sweepbot.example.com, "
    "claims: {project_path: acme/models}, person: U012ABC, channel: C012ABC}}"
)
# Claims by which GitHub and GitLab say whose job it is. Both sign tokens for everyone's repositories.
WHOSE = (
    *("repository", "repository_id", "repository_owner", "repository_owner_id"),
    *("project_path", "project_id", "namespace_path", "namespace_id", "sub"),
)


def _claims(claims: dict[str, str]) -> dict[str, str]:
    if not claims.keys() & {*WHOSE}:
        raise ValueError(
            f"must have a claim that says whose job it is: {listed(WHOSE, 'or')}. The issuer also signs "
            "tokens for the jobs of others"
        )
    for key, value in claims.items():
        if "*" in value:
            raise ValueError(f'must have whole values, without *; got {key}: "{value}"')
    return claims


@dataclass(frozen=True, kw_only=True)
class CiJobs(Section):
    """CI jobs whose tokens (OpenID Connect) are accepted."""

    name: Annotated[str, Name(NAMESPACE_NAME, "have only lowercase letters, digits, and dashes, at most 63")]
    issuer: Annotated[
        Text,
        Matching(ISSUER, "an https URL such as https://gitlab.com", "URL"),
        Key("https://token.actions.githubusercontent.com"),
    ]
    """Issuer of the tokens, as in their claim `iss`."""
    audience: Annotated[
        Text,
        Matching(AUDIENCE, "1 to 200 printable characters without spaces", "text"),
        Key("https://sweepbot.example.com"),
    ]
    """What the tokens' claim `aud` must have: the URL of this API, so that no other service can use theirs
    here."""
    claims: Annotated[
        Labels,
        AfterValidator(_claims),
        Key("{repository: acme/models, ref: refs/heads/main}"),
    ]
    """Claims that a token must have, with exactly these values. At least one must say whose job it is."""
    person: Annotated[Member, Key("U012ABC")] = ""
    """Slack user who answers for these jobs: the sweeps are theirs, with their permissions and limits."""
    team: Annotated[TeamName, Key("vision")] = ""
    """Team that answers for these jobs, in place of `person`."""
    budget: Annotated[AmountText, Key("100", "no limit of its own")] = ""
    """What these jobs' sweeps can use in a month without approval."""
    channel: Annotated[Channel, Key("C012ABC")]
    """Slack channel of the sweeps' threads."""

    def problems(self, _: Any) -> Iterator[Problem]:
        if bool(self.person) == bool(self.team):
            yield "", "must have either `person` or `team`: who answers for these jobs"

    def admits(self, claims: Mapping[str, Any]) -> bool:
        """Return whether verified claims are those of such a job. Pure."""
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        return (
            claims.get("iss") == self.issuer
            and self.audience in audiences
            and all(_text(claims.get(key)) == value for key, value in self.claims.items())
        )


def _text(value: Any) -> str | None:
    """Return a claim as the file has it: GitLab's `ref_protected` is text, others' can be a boolean."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int) else None


@dataclass(frozen=True, kw_only=True)
class ApiAccess(Section):
    """Access to the HTTP API."""

    ci: Annotated[Named[CiJobs], Key(EXAMPLE, "none")] = ()
    """CI jobs that can call the API, by name ([details](api.md#ci-without-a-secret))."""
