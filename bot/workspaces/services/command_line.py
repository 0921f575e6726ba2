"""The commands after /env service. Pure."""

import re
from dataclasses import dataclass
from typing import Any

from bot.platform.commands.grammar import Command, Option, Table
from bot.platform.commands.option_types import Choice, typed
from bot.platform.config.environments import ServiceConfig, checked_name
from bot.workspaces.services.snippet import Service, check_allowed, read_service

START, LIST, DELETE = "start", "list", "delete"
GROUP = "Services"  # in the help
FENCE = re.compile(r"```(?:ya?ml[ \t]*\n)?(.*)```", re.DOTALL)


def named(_key: str, text: str, _context: Any) -> str:
    """Read the name of an environment, a service, or a home. Raises UserError."""
    return checked_name(text)


NAME = Option("name", named, word=True, required=True)
YAML = Option("yaml", typed, word=True, whole=True)
TEAM = Option("which", Choice(("team",)), word=True)
FORM = "a form for a container that runs until you delete it, such as an inference server"
STARTS = "the same without the form; its message shows its address in the cluster"
DELETES = "delete it; `/env stop NAME` only releases its GPUs, and `/env start NAME` restarts it"
COMMANDS = (
    Command("service", None, (), GROUP, FORM),
    Command("service start", START, (YAML,), GROUP, STARTS, usage="YAML"),
    Command("service list", LIST, (TEAM,), GROUP, "your services, or your team's"),
    Command("service delete", DELETE, (NAME,), GROUP, DELETES),
    Command("service help"),
)
TABLE = Table(prefix="/env", commands=COMMANDS)


@dataclass(frozen=True, kw_only=True)
class ServiceCommand:
    verb: str  # START, LIST, or DELETE
    name: str = ""  # start, delete
    service: Service | None = None  # start
    which: str = ""  # list: "" or "team"


def parse_service(text: str, config: ServiceConfig | None) -> ServiceCommand | None:
    """Return the command; None to open the form. Raises UserError; the text isn't `help`."""
    parsed = TABLE.parse(text)
    verb, values = parsed.command.does, parsed.values()
    if verb not in {LIST, DELETE}:
        return start_command(values["yaml"], config) if values else None
    return ServiceCommand(verb=verb, **values)


def start_command(text: str, config: ServiceConfig | None, file: str = "YAML") -> ServiceCommand:
    """Return the command to start the service of a YAML snippet. Raises UserError."""
    fenced = FENCE.fullmatch(text.strip())
    name, service = read_service(fenced[1] if fenced else text, file)
    if config:
        check_allowed(service, config)
    return ServiceCommand(verb=START, name=name, service=service)
