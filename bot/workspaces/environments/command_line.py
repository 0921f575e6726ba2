"""The commands after /env, and after /env service, with their options, help, and the words that mean them.
Pure.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bot.core.errors import UserError
from bot.platform.commands.grammar import Command, Option, Table, option_help, read_values
from bot.platform.commands.option_types import IN_HOURS, PERIODS, Choice, Duration, Number, invalid, typed
from bot.platform.config.environments import (
    NAME,
    STORAGE,
    EnvironmentConfig,
    ServiceConfig,
    checked_name,
)
from bot.platform.config.profiles import Profile
from bot.workspaces.environments.requests import EnvironmentRequest, Verb
from bot.workspaces.environments.spec import checked_gpus
from bot.workspaces.services.snippet import allowed_service
from k8s.quantities import amount

MAX_KEEP_HOURS, KEEP_HOURS = 7 * 24, 24  # of `keep`
MAX_GPUS = 999  # of a number; the limit of the configuration is checked later
GROUP = "Environments"  # in the help
Profiles = tuple[Profile, ...]


def _home(key: str, text: str, config: EnvironmentConfig) -> str:
    if NAME.fullmatch(text):
        return text
    if not STORAGE.fullmatch(text):
        raise invalid(key, "a size such as 20Gi, or the name of a home", text)
    if amount(text) > amount(config.max_home):
        raise UserError(f"home= can be at most {config.max_home}; got {text}.", field=key)
    return text


def _named(_key: str, text: str, _context: Any) -> str:
    """Read the name of an environment, a service, or a home. Raises UserError."""
    return checked_name(text)


ENVIRONMENT = Option("name", _named, label="Name", word=True)
HOURS = Option("hours", Duration(MAX_KEEP_HOURS), word=True, means=PERIODS, units=IN_HOURS)
OF_HOME = Option("home", Choice(("home",)), word=True)
WHICH = Option("which", Choice(("team", "idle")), word=True)
OPTIONS = (
    Option("image", Choice("images", "image"), label="Image"),
    Option("gpus", Number(0, MAX_GPUS), label="GPUs"),
    Option("profile", typed, "", "machine type", "Profile"),
    Option("size", Choice("sizes", "size"), label="Size"),
    Option("home", _home, "", "a size such as `20Gi`, or a home's name", "Home"),
)
FORM = "a form to start an environment: Jupyter or code-server"
STARTS = "the same without the form; or start a stopped one, also with other options"
KEEPS = "prevent idle warnings and the automatic stop, such as `24h` or up to `7d`"
DELETES = "delete it and keep its home; `delete home NAME` deletes a home's files, after you type its name"
LISTS = "your environments and unused homes, your team's, or idle ones"
OF_START = (
    "need-environment want-environment get-environment give-environment have-environment "
    "(create launch new start need want)"
)
OF_LIST = "(list status show ls ps my which have)"
OF_STOP = "stop pause kill shut-down"
OF_DELETE = "(delete remove rm)"
OPENS, STOPS = "its link and credentials, only to you", "release its GPUs and keep its home"
COMMANDS = (
    Command("", None, (), GROUP, FORM, said="environment"),
    Command("start", Verb.START, (ENVIRONMENT, *OPTIONS), GROUP, STARTS, said=OF_START),
    Command("open", Verb.OPEN, (ENVIRONMENT,), GROUP, OPENS, said="(open)"),
    Command("list", Verb.LIST, (WHICH,), GROUP, LISTS, answers=True, said=OF_LIST),
    Command("keep", Verb.KEEP, (ENVIRONMENT, HOURS), GROUP, KEEPS, said="(keep)"),
    Command("stop", Verb.STOP, (ENVIRONMENT,), GROUP, STOPS, said=OF_STOP),
    Command("delete", Verb.DELETE, (OF_HOME, ENVIRONMENT), GROUP, DELETES, said=OF_DELETE),
)
SERVICES = "Services"  # in the help
SERVICE = Option("name", _named, word=True, required=True)
YAML = Option("yaml", typed, word=True, whole=True)
OF_TEAM = Option("which", Choice(("team",)), word=True)
SERVICE_FORM = "a form for a container that runs until you delete it, such as an inference server"
SERVICE_STARTS = "the same without the form; its message shows its address in the cluster"
SERVICE_DELETES = "delete it; `/env stop NAME` only releases its GPUs, and `/env start NAME` restarts it"
SERVICE_COMMANDS = (
    Command("service", None, (), SERVICES, SERVICE_FORM),
    Command("service start", Verb.START, (YAML,), SERVICES, SERVICE_STARTS, usage="YAML"),
    Command("service list", Verb.LIST, (OF_TEAM,), SERVICES, "your services, or your team's"),
    Command("service delete", Verb.DELETE, (SERVICE,), SERVICES, SERVICE_DELETES),
    Command("service help"),
)
SERVICE_TABLE = Table(prefix="/env", commands=SERVICE_COMMANDS)
TABLE = Table(
    prefix="/env", commands=(*COMMANDS, *SERVICE_COMMANDS), about="environment", section="environments"
)
SERVICE_HELP = TABLE.help_of(SERVICES)
HELP = f"{TABLE.help_of(GROUP)}\n{option_help(OPTIONS)}\n{SERVICE_HELP}"


def parse(
    text: str, request: EnvironmentRequest, config: EnvironmentConfig, profiles: Profiles = ()
) -> EnvironmentRequest:
    """Return the request with what the text adds. Raises UserError; the text isn't empty or `help`."""
    parsed = TABLE.parse(text, config)
    given = {key: value for key, value in parsed.options.items() if value}
    values, verb = replace(parsed, options=given).values(config), parsed.command.does
    if verb is Verb.START:
        return _started(request, values, profiles)
    if verb is Verb.DELETE and (home := values.pop("home", "")):
        verb = Verb.DELETE_HOME if "name" in values else verb
        values.setdefault("name", home)
    if verb is Verb.KEEP:
        values.setdefault("hours", KEEP_HOURS)
    return replace(request, verb=verb, **values)


def parse_service(
    text: str, request: EnvironmentRequest, config: ServiceConfig | None
) -> EnvironmentRequest | None:
    """Return the request with what the text adds; None to open the form. Raises UserError; not for `help`."""
    parsed = SERVICE_TABLE.parse(text)
    verb, values = parsed.command.does, parsed.values()
    if verb in {Verb.LIST, Verb.DELETE}:
        return replace(request, verb=verb, services=True, **values)
    if not values:
        return None
    name, service = allowed_service(values["yaml"], config)
    return replace(request, verb=verb, name=name, service=service)


def with_options(
    request: EnvironmentRequest,
    options: Mapping[str, str],
    config: EnvironmentConfig,
    profiles: Profiles = (),
) -> EnvironmentRequest:
    """Return the request to start with a form's values; "" isn't set. Raises UserError with its field."""
    given = {key: value for key, value in options.items() if value}
    values, errors = read_values((ENVIRONMENT, *OPTIONS), given, config)
    for key, error in errors.items():
        raise UserError(error, field=key)
    return _started(request, values, profiles)


def _started(request: EnvironmentRequest, values: dict[str, Any], profiles: Profiles) -> EnvironmentRequest:
    checked_gpus(values.get("profile", ""), values.get("gpus"), 0, profiles)
    return replace(request, verb=Verb.START, **values)
