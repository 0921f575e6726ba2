"""Parse the text after /env service. Pure."""

import re
from dataclasses import dataclass

from bot.config.environment_keys import checked_name
from bot.config.services import ServiceConfig
from bot.core.errors import UserError
from bot.launch.command_line import unescape
from bot.services.snippet import MAX_SNIPPET, Service, check_allowed, read_service
from bot.text.wording import did_you_mean, shortened

START, LIST, DELETE = "start", "list", "delete"
WORDS = (START, LIST, DELETE, "help")
MAX_ESCAPED = 5 * MAX_SNIPPET + 100  # Slack escapes `&` as `&amp;`
FENCE = re.compile(r"```(?:ya?ml[ \t]*\n)?(.*)```", re.DOTALL)
HELP = """*Run a service:* `/env service` opens a form for a container that runs until you delete it, such \
as an inference server. `/env service start`, followed by YAML, starts one without the form. Its message \
shows its address in the cluster.
*Manage services:* `/env service list` shows yours, and `/env service list team` your team's. \
`/env service delete llm` deletes one. `/env stop llm` releases its GPUs; `/env start llm` restarts it."""


@dataclass(frozen=True, kw_only=True)
class ServiceCommand:
    verb: str  # START, LIST, or DELETE
    name: str = ""  # start, delete
    service: Service | None = None  # start
    which: str = ""  # list: "" or "team"


def after_service(text: str) -> str | None:
    """Return what follows `service`; None if the command isn't about services."""
    word, *rest = text.split(maxsplit=1) or [""]
    return (rest[0].strip() if rest else "") if word.lower() == "service" else None


def parse_service(text: str, config: ServiceConfig | None) -> ServiceCommand | None:
    """Return the command; None to open the form. Raises UserError; the text isn't `help`."""
    if len(text) > MAX_ESCAPED:
        raise UserError(f"The YAML is too long ({len(text):,} characters; the limit is {MAX_SNIPPET:,}).")
    word, *rest = text.split(maxsplit=1) or [START]
    after, word = rest[0].strip() if rest else "", word.lower()
    if word not in WORDS:
        raise UserError(f'Unknown command "service {shortened(word)}".{did_you_mean(word, WORDS)}')
    if word == START:
        return start_command(unescape(after), config) if after else None
    if word == LIST:
        if after not in {"", "team"}:
            raise UserError(f'/env service list takes team, or nothing; got "{shortened(after)}".')
        return ServiceCommand(verb=LIST, which=after)
    if not after:
        raise UserError("Add the service's name: `/env service delete NAME`.")
    return ServiceCommand(verb=DELETE, name=checked_name(after.replace("`", "")))


def start_command(text: str, config: ServiceConfig | None, file: str = "YAML") -> ServiceCommand:
    """Return the command to start the service of a YAML snippet. Raises UserError."""
    fenced = FENCE.fullmatch(text.strip())
    name, service = read_service(fenced[1] if fenced else text, file)
    if config:
        check_allowed(service, config)
    return ServiceCommand(verb=START, name=name, service=service)
