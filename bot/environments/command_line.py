"""Parse the text after /env. Pure."""

import re
from dataclasses import replace

from bot.config.environment_keys import NAME, STORAGE, checked_name
from bot.config.environments import EnvironmentConfig, storage_bytes
from bot.config.profiles import Profile
from bot.core.errors import UserError
from bot.environments.machine import checked_gpus
from bot.environments.requests import EnvironmentRequest, Verb
from bot.text.wording import did_you_mean, listed, shortened

MAX_KEEP_HOURS = 7 * 24
MAX_COMMAND = 1_000  # characters
OPTIONS = ("image", "size", "gpus", "profile", "home")
LISTS = ("team", "idle")
Profiles = tuple[Profile, ...]
HOURS = re.compile(r"([0-9]{1,4})(h|d)?")
VERBS = tuple(verb.value for verb in Verb if verb is not Verb.DELETE_HOME)
WORDS = (*VERBS, "service", "help")
SYNONYMS = {
    **dict.fromkeys(("status", "show", "ls", "ps"), "list"),
    **dict.fromkeys(("create", "launch", "new"), "start"),
    **dict.fromkeys(("pause", "kill"), "stop"),
    **dict.fromkeys(("remove", "rm"), "delete"),
}
HELP = """*Start an environment:* `/env start lab image=jupyter gpus=1 size=m home=20Gi` starts Jupyter or \
code-server on the cluster; `profile=` chooses the machine type. Every option has a default. `/env` alone \
opens a form.
*Use it:* `/env open lab` shows its link and credentials, only to you. `/env list` shows your environments, \
`/env list team` your team's, and `/env list idle` the idle ones.
*Manage it:* `/env stop lab` releases its GPUs and keeps the home; `/env start lab` starts it again, with \
other options if you add them. `/env keep lab 24h` prevents idle warnings and the automatic stop. \
`/env delete lab` deletes the environment and keeps the home; `/env delete home lab` asks you to type the \
home's name and then deletes its files."""


def parse(
    text: str, request: EnvironmentRequest, config: EnvironmentConfig, profiles: Profiles = ()
) -> EnvironmentRequest:
    """Return the request with what the text adds. Raises UserError; the text isn't empty or `help`."""
    if len(text) > MAX_COMMAND:
        raise UserError(f"The command is too long ({len(text):,} characters; the limit is {MAX_COMMAND:,}).")
    word, *rest = text.replace("`", "").split()
    if word.lower() not in VERBS:
        meant = SYNONYMS.get(word.lower(), word)
        raise UserError(f'Unknown command "{shortened(word)}".{did_you_mean(meant, WORDS)}')
    verb = Verb(word.lower())
    if verb is Verb.DELETE and rest[:1] == ["home"] and len(rest) > 1:
        verb, rest = Verb.DELETE_HOME, rest[1:]
    request = replace(request, verb=verb)
    if verb is Verb.START:
        return with_options(request, _options(rest), config, profiles)
    if verb is Verb.LIST:
        return _list(rest, request)
    hours = rest.pop() if verb is Verb.KEEP and rest and HOURS.fullmatch(rest[-1]) else ""
    if len(rest) > 1:
        raise UserError(f'Name one environment; got "{shortened(" ".join(rest))}".')
    request = replace(request, name=checked_name(rest[0]) if rest else "")
    return replace(request, hours=_hours(hours)) if verb is Verb.KEEP else request


def _options(rest: list[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for each in rest:
        key, equals, value = each.partition("=")
        key = key.lower() if equals else "name"
        if key != "name" and key not in OPTIONS:
            raise UserError(f"Unknown option {shortened(key)}=.{did_you_mean(key, OPTIONS)}")
        if key in options:
            raise UserError(
                f'{key}= is set twice: "{shortened(options[key])}" and "{shortened(value)}".'
                if equals
                else f'Name one environment; got "{shortened(options[key])}" and "{shortened(each)}".'
            )
        options[key] = value if equals else each
    return options


def with_options(
    request: EnvironmentRequest,
    options: dict[str, str],
    config: EnvironmentConfig,
    profiles: Profiles = (),
) -> EnvironmentRequest:
    """Return the request with these options, each checked; "" isn't set. Raises UserError with its field."""
    image, size, profile = (options.get(key, "") for key in ("image", "size", "profile"))
    gpus = _gpus(options.get("gpus", ""))
    if image and not config.image(image):
        raise _not_configured("image", image, [each.name for each in config.images])
    if size and not config.size(size):
        raise _not_configured("size", size, [each.name for each in config.sizes])
    checked_gpus(profile, gpus, 0, profiles)
    return replace(
        request,
        name=checked_name(options["name"]) if options.get("name") else "",
        image=image,
        size=size,
        gpus=gpus,
        profile=profile,
        home=_home(options.get("home", ""), config),
    )


def _not_configured(field: str, value: str, names: list[str]) -> UserError:
    hint = did_you_mean(value, names)
    return UserError(f'{field}= must be a configured {field}; got "{shortened(value)}".{hint}', field=field)


def _gpus(text: str) -> int | None:
    if not text:
        return None
    if not re.fullmatch("[0-9]{1,3}", text, re.ASCII):
        raise UserError(f'gpus= must be a whole number; got "{shortened(text)}".', field="gpus")
    return int(text)


def _home(text: str, config: EnvironmentConfig) -> str:
    if not text or NAME.fullmatch(text):
        return text
    if not STORAGE.fullmatch(text):
        rule = "a size such as 20Gi, or the name of a home"
        raise UserError(f'home= must be {rule}; got "{shortened(text)}".', field="home")
    if storage_bytes(text) > storage_bytes(config.max_home):
        raise UserError(f"home= can be at most {config.max_home}; got {text}.", field="home")
    return text


def _list(rest: list[str], request: EnvironmentRequest) -> EnvironmentRequest:
    which = " ".join(rest).lower()
    if which not in ("", *LISTS):
        raise UserError(f'/env list takes {listed(LISTS, "or")}; got "{shortened(which)}".')
    return replace(request, which=which)


def _hours(text: str) -> int:
    found = HOURS.fullmatch(text or "24h")
    hours = int(found[1]) * (24 if found[2] == "d" else 1) if found else 0
    if not 1 <= hours <= MAX_KEEP_HOURS:
        raise UserError(f'The time must be from 1h to {MAX_KEEP_HOURS // 24}d; got "{shortened(text)}".')
    return hours
