"""Parse the text after /env service. Pure."""

import re
from dataclasses import replace

from bot.config.environments import EnvironmentConfig
from bot.core.errors import UserError
from bot.core.wording import did_you_mean, shortened
from bot.environments.command_line import checked_name
from bot.environments.requests import EnvironmentRequest, Verb
from bot.environments.service import MAX_SNIPPET, check_allowed, read_service
from bot.launch.command_line import unescape

START = "start"
WORDS = (START, "list", "delete", "help")
MAX_ESCAPED = 5 * MAX_SNIPPET + 100  # Slack escapes `&` as `&amp;`
FENCE = re.compile(r"```(?:ya?ml[ \t]*\n)?(.*)```", re.DOTALL)
HELP = """*Run a service:* `/env service` opens a form for a container that runs until you delete it, such \
as an inference server. `/env service start` with YAML after it needs no form. Its message shows its address \
in the cluster.
*Manage services:* `/env service list` shows yours, and `/env service list team` your team's. \
`/env service delete llm` deletes one. `/env stop llm` releases its GPUs; `/env start llm` restarts it."""


def after_service(text: str) -> str | None:
    """Return what follows `service`; None if the command isn't about services."""
    word, *rest = text.split(maxsplit=1) or [""]
    return (rest[0].strip() if rest else "") if word.lower() == "service" else None


def parse_service(
    text: str, request: EnvironmentRequest, config: EnvironmentConfig
) -> EnvironmentRequest | None:
    """Return the request; None to open the form. Raises UserError; the text isn't `help`."""
    if len(text) > MAX_ESCAPED:
        raise UserError(f"The YAML is too long ({len(text):,} characters; the limit is {MAX_SNIPPET:,}).")
    word, *rest = text.split(maxsplit=1) or [START]
    after, word = rest[0].strip() if rest else "", word.lower()
    if word not in WORDS:
        raise UserError(f'Unknown command "service {shortened(word)}".{did_you_mean(word, WORDS)}')
    if word == START:
        return with_snippet(unescape(after), request, config) if after else None
    request = replace(request, services=True)
    if word == "list":
        if after not in {"", "team"}:
            raise UserError(f'/env service list takes team, or nothing; got "{shortened(after)}".')
        return replace(request, verb=Verb.LIST, which=after)
    if not after:
        raise UserError("Add the service's name: `/env service delete NAME`.")
    return replace(request, verb=Verb.DELETE, name=checked_name(after.replace("`", "")))


def with_snippet(
    text: str, request: EnvironmentRequest, config: EnvironmentConfig, file: str = "YAML"
) -> EnvironmentRequest:
    """Return the request to start the service of a YAML snippet. Raises UserError."""
    fenced = FENCE.fullmatch(text.strip())
    name, service = read_service(fenced[1] if fenced else text, file)
    if config.services:
        check_allowed(service, config.services)
    return replace(request, verb=Verb.START, name=name, service=service)
