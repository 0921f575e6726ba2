"""Parse the text after /sweep into a SweepRequest. Pure."""

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from bot.config.policy import Config, prebuilt_image, repository
from bot.config.policy_keys import GOALS, OBJECTIVE
from bot.core.errors import UserError
from bot.core.flags import FlagStyle
from bot.core.request import SEEDS, Notify, SweepRequest
from bot.core.seeds import parse_seeds, seeds_option
from bot.core.space import ALGORITHMS, MetricSource
from bot.core.wording import did_you_mean, fitting, listed, shortened
from bot.launch.algorithms import rejection
from bot.launch.metrics import path_objection

DIGITS_MAX = 40  # of a number: longer ones exceed every limit
SIMILARITY = 0.6  # 0 to 1, for suggestions: `brnch` is branch, but `user` isn't gpus
PREFIX_MIN = 3  # letters that abbreviate an algorithm's name
EXAMPLE = "`/sweep branch=main gpus=1 space=lr`"
HELP = f"""*Start a sweep:* {EXAMPLE} builds the branch and runs the search in its `sweeps/lr.yaml`, one GPU \
per trial. `/sweep` alone opens a form.
*Options:* `repo=` (name or URL), `image=` (prebuilt; skips the build), `trials=`, `parallel=`, \
`algorithm=` ({", ".join(ALGORITHMS)}), `metric=`, `goal=`, \
`metrics=` (`stdout`, `push`, or a file), `flags=` (`a.b=1` for Hydra, `env`), `name=`, \
`cmd="python train.py --epochs=3"`, \
`notify=` (`channel`, `dm`, or `none`: thread only).
*Repeat a command:* `/sweep branch=main seeds=5 cmd="python train.py"` runs it once with each seed and \
reports mean and deviation.
*Manage sweeps:* `/sweep list`, `status`, `results`, `logs`, `cancel`, `drain` (start no new trials), \
`extend trials=20` (new total), `rerun` (plus any option to change). Name a sweep by its full name, or by \
its start or end: `/sweep logs otter`. `logs` and `cancel` also take a trial.
*In a sweep's thread:* mention me, for example `@sweepbot logs`. I can't read direct messages.
*GPUs:* `/gpus` shows free GPUs; `/gpus help` lists all views.
*Admins:* `/sweep doctor` checks the installation; `/sweep setup` sets a channel's repository and daily \
digest; `/sweep release NAME` retries what Sweepbot quarantined."""

# A link as Slack sends it: after repo=, use its URL, elsewhere its label, which is what the user typed.
_LINK = re.compile(r"""((?i:repo)=["']?)?<((?:https?://|mailto:)[^|<>]+)(?:\|([^<>]*))?>""")
_QUOTES = str.maketrans("“”„‟‘’‚‛\u00a0", "\"\"\"\"'''' ")  # and no-break spaces
COMMAND_MAX = 8_000  # characters, including cmd=
ERRORS_MAX = 2_500  # characters of all errors together
STARTERS = ("run", "start", "launch", "new")  # optional first word without a meaning of its own
_SEPARATORS = ",;"  # ignored after an option
_FREE_TEXT = {"cmd", "name"}  # where separators belong to the value
# What git check-ref-format rejects; a leading dash, which git would read as an option; #, which ends the
# branch in the URL that Kaniko gets; and $(, which Kubernetes expands.
_INVALID_REF = re.compile(r"^[-/.]|\$\(|[\x00-\x20\x7f~^:?*#\[\\]|\.\.|//|/\.|@\{|\.lock(/|$)|[/.]$|^@$")


def parse(text: str, config: Config) -> SweepRequest:
    """Parse a complete command. Raises UserError with one line for each error."""
    options, errors = _options(unescape(text))
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
    """Return an error for each option that `seeds=` rules out or needs. `options`: those typed now."""
    if request.seeds is None:
        return {}
    errors = {}
    if request.space != SEEDS or request.text is not None or "space" in options:
        errors["seeds"] = (
            "seeds= runs cmd= without a space. Remove seeds= or space=. To combine them, add the seeds to "
            "the space's parameters, for example `seed: [0, 1, 2]`."
        )
    if not request.cmd:
        errors["cmd"] = 'seeds= needs the command, for example cmd="python train.py".'
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
    values: dict[str, Any] = {"gpus": min(1, config.limits.gpus_per_trial)}
    errors: dict[str, str] = {}
    for key, value in options.items():
        try:
            values[key] = _READERS[key](key, value, config)
        except UserError as error:
            errors[key] = str(error)
    if "trials" in values and values.get("parallel", 0) > values["trials"]:
        errors["parallel"] = _too_parallel(values["parallel"], values["trials"])
    return values, errors


def changed(request: SweepRequest, text: str, config: Config) -> SweepRequest:
    """Return the request with the options in `text` changed, for the branch's latest commit.

    Raises UserError for invalid options.
    """
    options = parse_options(text)
    values, errors = read_values(options, config)
    after = replace(request, commit=None, **{key: values[key] for key in options if key in values})
    if not errors and after.parallel and after.trials and after.parallel > after.trials:
        errors["parallel"] = _too_parallel(after.parallel, after.trials)
    errors |= conflicts(after, options)
    if errors:
        raise _user_error(errors.values())
    return after


def _too_parallel(parallel: int, trials: int) -> str:
    return f"parallel= can't exceed trials=; got parallel={parallel}, trials={trials}."


def _user_error(errors: Iterable[str]) -> UserError:
    return UserError("\n".join(fitting(errors, ERRORS_MAX)))


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
    if len(text) > COMMAND_MAX:
        raise UserError(f"The command can have at most {COMMAND_MAX:,} characters; got {len(text):,}.")
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
            f"Unknown argument: {listed(unknown)}. Write `key=value` without spaces, for example {EXAMPLE}. "
            "All commands: `/sweep help`."
        )
    for typed, _, value in (word.partition("=") for word in words if word.find("=") > 0):
        key = typed.lower()
        if key not in _READERS:
            errors.append(f"Unknown option: `{shortened(typed)}=`.{did_you_mean(key, _READERS, SIMILARITY)}")
        elif key in options:
            errors.append(f"`{key}=` is set twice.")
        else:
            options[key] = value if key in _FREE_TEXT else value.rstrip(_SEPARATORS)
    return options, errors


def _branch(_key: str, value: str, _config: Config) -> str:
    if not value or _INVALID_REF.search(value):
        raise UserError(f'branch= must be a branch or tag name; got "{shortened(value)}".')
    return value


def _space(_key: str, value: str, _config: Config) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", value.lower()):
        raise UserError(
            "space= must be a file name from sweeps/ without .yaml (lowercase letters, digits, dashes, "
            f'underscores), for example space=lr; got "{shortened(value)}".'
        )
    return value.lower()


def _repo(_key: str, value: str, config: Config) -> str:
    repository(value, config)
    return value


def _image(_key: str, value: str, config: Config) -> str:
    prebuilt_image(value, config)
    return value


def _name(_key: str, value: str, _config: Config) -> str:
    if not 1 <= len(value) <= 30 or not value.isprintable() or not value.strip():
        raise UserError(f'name= must be 1 to 30 characters on one line; got "{shortened(value)}".')
    return value


def _cmd(_key: str, value: str, _config: Config) -> str:
    if not value.strip():
        raise UserError('cmd= must not be empty. Write cmd="python train.py" or omit it.')
    return value


def _seeds(_key: str, value: str, config: Config) -> str:
    return seeds_option(parse_seeds(value, config.limits.trials))


def _metric(_key: str, value: str, _config: Config) -> str:
    if not OBJECTIVE.fullmatch(value):
        raise UserError(
            f'metric= must be a name of letters, digits, dashes, and underscores; got "{shortened(value)}".'
        )
    return value


def _goal(_key: str, value: str, _config: Config) -> str:
    if value.lower() not in GOALS:
        raise UserError(f'goal= must be {listed(GOALS, "or")}; got "{shortened(value)}".')
    return value.lower()


def _metrics(_key: str, value: str, _config: Config) -> str:
    known = [source for source in MetricSource if source is not MetricSource.FILE]
    if value.startswith("/"):
        if why := path_objection(value):
            raise UserError(f"metrics= {why}.")
        return value
    if value.lower() not in known:
        words = listed([*known, "the absolute path of a file"], "or")
        raise UserError(f'metrics= must be {words}; got "{shortened(value)}".')
    return value.lower()


def _flags(_key: str, value: str, _config: Config) -> str:
    if value.lower() == "hydra":
        return FlagStyle.HYDRA.value
    if value.lower() not in set(FlagStyle):
        styles = listed([f'"{style}"' if " " in style else style for style in FlagStyle], "or")
        raise UserError(f'flags= must be {styles}; got "{shortened(value)}".')
    return value.lower()


def _notify(_key: str, value: str, _config: Config) -> Notify:
    if value.lower() not in set(Notify):
        raise UserError(f'notify= must be channel, dm, or none; got "{shortened(value)}".')
    return Notify(value.lower())


def _number(limit: str, minimum: int) -> Callable[[str, str, Config], int]:
    def read(key: str, value: str, config: Config) -> int:
        maximum: int = getattr(config.limits, limit)
        shown, digits = shortened(value), value.lstrip("0") or "0"
        whole = re.fullmatch(r"[0-9]+", value)
        # int() raises ValueError for very long numbers.
        if whole and (len(digits) > DIGITS_MAX or int(digits) > maximum):
            raise UserError(f"{key}= can be at most {maximum} on this cluster (limits.{limit}); got {shown}.")
        if not whole or int(digits) < minimum:
            raise UserError(f'{key}= must be a whole number from {minimum} to {maximum}; got "{shown}".')
        return int(digits)

    return read


def _algorithm(_key: str, value: str, _config: Config) -> str:
    name = value.lower()
    matches = [each for each in ALGORITHMS if len(name) >= PREFIX_MIN and each.startswith(name)]
    if name in ALGORITHMS or len(matches) == 1:
        return name if name in ALGORITHMS else matches[0]
    if why := rejection(name):
        raise UserError(f"algorithm= {why}.")
    hint = did_you_mean(name, ALGORITHMS, SIMILARITY)
    raise UserError(f'algorithm= must be a search algorithm; got "{shortened(value)}".{hint}')


_READERS: dict[str, Callable[[str, str, Config], Any]] = {
    "branch": _branch,
    "gpus": _number("gpus_per_trial", 0),
    "space": _space,
    "repo": _repo,
    "parallel": _number("parallel", 1),
    "trials": _number("trials", 1),
    "image": _image,
    "name": _name,
    "cmd": _cmd,
    "notify": _notify,
    "seeds": _seeds,
    "metric": _metric,
    "goal": _goal,
    "metrics": _metrics,
    "flags": _flags,
    "algorithm": _algorithm,
}
