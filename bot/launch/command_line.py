"""Parse the text after /sweep into a SweepRequest. Pure."""

import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from bot.config.policy import Config
from bot.config.profiles import chosen
from bot.core.errors import UserError
from bot.core.request import SEEDS, SweepRequest
from bot.launch.help_text import EXAMPLE
from bot.launch.options import READERS, is_auto, unknown_option
from bot.text.wording import fitting, listed, shortened

# A link as Slack sends it: after repo=, use its URL, elsewhere its label, which is what the user typed.
_LINK = re.compile(r"""((?i:repo)=["']?)?<((?:https?://|mailto:)[^|<>]+)(?:\|([^<>]*))?>""")
_QUOTES = str.maketrans("“”„‟‘’‚‛\u00a0", "\"\"\"\"'''' ")  # and no-break spaces
MAX_COMMAND = 8_000  # characters, including cmd=
MAX_ERRORS_TEXT = 2_500  # characters of all errors together
STARTERS = ("run", "start", "launch", "new")  # optional first word without a meaning of its own
_SEPARATORS = ",;"  # ignored after an option
_FREE_TEXT = {"cmd", "name"}  # where separators belong to the value


def parse(text: str, config: Config) -> SweepRequest:
    """Parse a complete command. Raises UserError with one line for each error."""
    return complete(*_options(unescape(text)), config)


def complete(options: Mapping[str, str], errors: Iterable[str], config: Config) -> SweepRequest:
    """Return the request with these options. Raises UserError with `errors` and all others, a line each."""
    errors = list(errors)
    missing = missing_options(options)
    if missing and not errors:
        errors.append(f"Missing {listed(f'`{key}=`' for key in missing)}. Example: {EXAMPLE}")
    values, invalid = read_values(options, config)
    errors += invalid.values()
    request = None if errors else SweepRequest(**{"space": SEEDS} | values)
    errors += conflicts(request, options).values() if request else ()
    if request is None or errors:
        raise _user_error(errors)
    return request


def missing_options(options: Collection[str]) -> list[str]:
    """Return the required options that aren't set. `seeds=` needs no space."""
    required = ("branch",) if "seeds" in options else ("branch", "space")
    return [key for key in required if key not in options]


def conflicts(request: SweepRequest, options: Collection[str]) -> dict[str, str]:
    """Return an error for each option that another one rules out or needs. `options`: those typed now."""
    errors = {}
    if request.auto and request.gpus == 0:
        errors["parallel"] = (
            "parallel=auto follows free GPUs, and gpus=0 needs none. Use a number, for example parallel=4."
        )
    if request.seeds is None:
        return errors
    if request.space != SEEDS or request.text is not None or "space" in options:
        errors["seeds"] = (
            "seeds= runs cmd= without a space. Remove seeds= or space=. To combine them, add the seeds to "
            "the space's parameters, for example `seed: [0, 1, 2]`."
        )
    if not request.cmd:
        errors["cmd"] = 'seeds= needs a command, for example cmd="python train.py".'
    for key in ("trials", "algorithm"):
        if getattr(request, key) is not None:
            errors[key] = f"{key}= can't be combined with seeds=: each seed is one trial. Remove {key}=."
    return errors


def parse_options(text: str) -> dict[str, str]:
    """Return the options by key; required ones can be missing. Raises UserError for a syntax error."""
    options, errors = _options(unescape(text))
    if errors:
        raise _user_error(errors)
    return options


def read_values(options: Mapping[str, str], config: Config) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the fields of a SweepRequest, and an error for each key with an invalid value."""
    values: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for key, value in options.items():
        try:
            values[key] = READERS[key](key, value, config)
        except UserError as error:
            errors[key] = str(error)
    if not {"gpus", "profile"} & errors.keys():
        try:
            values["gpus"] = gpus_of(values.get("profile"), values.get("gpus"), config)
        except UserError as error:
            errors[error.field] = str(error)
    if "parallel" in values:
        values["auto"] = is_auto(options["parallel"])
    if "trials" in values and not values.get("auto") and values.get("parallel", 0) > values["trials"]:
        errors["parallel"] = _too_parallel(values["parallel"], values["trials"])
    return values, errors


def gpus_of(profile: str | None, gpus: int | None, config: Config) -> int:
    """Return the GPUs of a trial: `gpus`, or else those of the profile. Raises UserError."""
    found = chosen(config.profiles, profile, gpus)
    if gpus is not None:
        return gpus
    return found.gpus if found else min(1, config.limits.gpus_per_trial)


def changed(request: SweepRequest, text: str, config: Config) -> SweepRequest:
    """Return the request with the options in `text` changed, for the branch's latest commit.

    Of a promotion, it is a sweep over seeds like any other: the latest commit can be different code.

    Raises UserError for invalid options.
    """
    options = parse_options(text)
    former = {} if request.profile is None else {"profile": request.profile}
    values, errors = read_values(former | options, config)
    keys = [*options, "auto", *(["gpus"] if "profile" in options else [])]  # a profile brings its own GPUs
    after = replace(
        request, commit=None, promotes=None, **{key: values[key] for key in keys if key in values}
    )
    if not (errors or after.auto) and after.parallel and after.trials and after.parallel > after.trials:
        errors["parallel"] = _too_parallel(after.parallel, after.trials)
    errors |= conflicts(after, options)
    if errors:
        raise _user_error(errors.values())
    return after


def _too_parallel(parallel: int, trials: int) -> str:
    return f"parallel= can't exceed trials=; got parallel={parallel}, trials={trials}."


def _user_error(errors: Iterable[str]) -> UserError:
    return UserError("\n".join(fitting(errors, MAX_ERRORS_TEXT)))


def unescape(text: str) -> str:
    """Undo Slack's escapes and links, and the curly quotes and em dashes that phones make."""
    text = _LINK.sub(_typed, text).translate(_QUOTES)
    text = re.sub(r"(?<!\w)—(?=\w)", "--", text)
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _typed(link: re.Match[str]) -> str:
    repo, url, label = link[1] or "", link[2], link[3]
    if repo and url.startswith("http"):
        return repo + url
    return repo + (label or url.removeprefix("mailto:"))


def _options(text: str) -> tuple[dict[str, str], list[str]]:
    if len(text) > MAX_COMMAND:
        raise UserError(f"The command can have at most {MAX_COMMAND:,} characters; got {len(text):,}.")
    try:
        words = shlex.split(text)
    except ValueError:
        raise UserError(f'Unclosed quote. Write `cmd="python train.py"`. Got: {shortened(text)}') from None
    words = [word for word in words if word.strip(_SEPARATORS)]
    if words and words[0].lower() in STARTERS:
        del words[0]
    options: dict[str, str] = {}
    errors: list[str] = []
    unknown = [f"`{shortened(word)}`" for word in words if word.find("=") < 1]
    if unknown:
        errors.append(
            f"Unknown argument{'s' if unknown[1:] else ''}: {listed(unknown)}. "
            f"Write `key=value` without spaces, for example {EXAMPLE}. All commands: `/sweep help`."
        )
    for typed, _, value in (word.partition("=") for word in words if word.find("=") > 0):
        key = typed.lower()
        if key not in READERS:
            errors.append(unknown_option(typed))
        elif key in options:
            errors.append(f"`{key}=` is set twice.")
        else:
            options[key] = value if key in _FREE_TEXT else value.rstrip(_SEPARATORS)
    return options, errors
