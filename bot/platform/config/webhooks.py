"""Where events of sweeps are sent by HTTP: `webhooks:` of the configuration file. Pure."""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from bot.core.errors import UserError
from bot.platform.config.allowed import Teams
from bot.platform.config.rules import Key, Matching, Name, OneOf, Several
from bot.platform.config.section import Section
from bot.platform.config.value_types import NAMESPACE_NAME, Channel, Text

URL = re.compile(r"https?://[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*(:[0-9]{1,5})?(/[!-~]*)?")
PREFIX = "whsec_"  # of secrets, as https://www.standardwebhooks.com has them
KEY_BYTES = range(24, 65)


class EventType(StrEnum):
    STARTED = "sweep.started"
    FIRST_TRIAL_HEALTHY = "sweep.first_trial.healthy"
    FIRST_TRIAL_FAILED = "sweep.first_trial.failed"
    ENDED = "sweep.ended"


@dataclass(frozen=True, kw_only=True)
class Webhook(Section):
    name: Annotated[str, Name(NAMESPACE_NAME, "have only lowercase letters, digits, and dashes, at most 63")]
    url: Annotated[
        Text,
        Matching(URL, "an http or https URL without a user, a password, and spaces", "URL", shown=False),
        Key("https://hooks.example.com/sweepbot"),
    ]
    """Where the events are sent. Redirects aren't followed."""
    channels: Annotated[Several[Channel], Key("[C012ABC]", "all")] = ()
    """Slack channels whose sweeps are reported."""
    teams: Annotated[Teams, Key("[vision]", "all")] = ()
    """Teams whose sweeps are reported."""
    events: Annotated[
        Several[Annotated[Text, OneOf(tuple(EventType))]], Key("[sweep.started, sweep.ended]", "all")
    ] = ()
    """What is reported."""

    @property
    def variable(self) -> str:
        """The environment variable with the secret that signs the requests."""
        return f"WEBHOOK_{self.name.replace('-', '_').upper()}_SECRET"

    def wants(self, channel: str, team: str) -> bool:
        """Return whether it gets the events of a sweep with this channel and team; `""`: no team."""
        return (not self.channels or channel in self.channels) and (not self.teams or team in self.teams)

    def key(self, environ: Mapping[str, str]) -> bytes:
        """Return the key that signs. Raises UserError if the variable isn't set to one."""
        secret = environ.get(self.variable, "")
        try:
            key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
        except ValueError:
            key = b""
        if not secret.startswith(PREFIX) or len(key) not in KEY_BYTES:
            raise UserError(
                f"{self.variable} must be {PREFIX} and 24 to 64 bytes as base64, for webhooks.{self.name}. "
                f'*Fix:* Set it in the Secret sweepbot, for example to "{PREFIX}$(openssl rand -base64 32)".'
            )
        return key
