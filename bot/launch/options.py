"""Read the value of each option of a sweep. Pure."""

import re
from collections.abc import Callable
from typing import Any

from bot.config.clusters import cluster_option
from bot.config.policy import Config, prebuilt_image, repository
from bot.config.policy_keys import A_MINUTE, GOALS, MAX_HOURS
from bot.config.profiles import chosen
from bot.config.queues import priority_option, queue_option
from bot.core.errors import UserError
from bot.core.flags import FlagStyle
from bot.core.request import Notify
from bot.core.seeds import parse_seeds, seeds_option
from bot.core.space import ALGORITHMS, MetricSource
from bot.spaces.algorithms import rejection
from bot.spaces.metrics import NAME_RULE, path_objection
from bot.spaces.space_keys import KEYS, METRIC_NAME, RESOURCES
from bot.text.wording import did_you_mean, listed, shortened

MAX_DIGITS = 40  # of a number: longer ones exceed every limit
_SWITCH = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}
AUTO = "auto"  # of parallel=
PREFIX_MIN = 3  # letters that abbreviate an algorithm's name
# What git check-ref-format rejects; a leading dash, which git would read as an option; #, which ends the
# branch in the URL that Kaniko gets; and $(, which Kubernetes expands.
_INVALID_REF = re.compile(r"^[-/.]|\$\(|[\x00-\x20\x7f~^:?*#\[\\]|\.\.|//|/\.|@\{|\.lock(/|$)|[/.]$|^@$")


def _branch(_key: str, value: str, _config: Config) -> str:
    if not value or _INVALID_REF.search(value):
        raise UserError(f'branch= must be a branch or tag name; got "{shortened(value)}".')
    return value


def _space(_key: str, value: str, _config: Config) -> str:
    name = re.sub(r"^sweeps/|\.ya?ml$", "", value.lower())  # pasted from a file's path
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
        raise UserError(
            "space= must be a file name from sweeps/ without .yaml (lowercase letters, digits, dashes, "
            f'underscores), for example space=lr; got "{shortened(value)}".'
        )
    return name


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
    if not METRIC_NAME.fullmatch(value):
        raise UserError(f'metric= must be {NAME_RULE}; got "{shortened(value)}".')
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


def _profile(_key: str, value: str, config: Config) -> str:
    chosen(config.profiles, value.lower(), None)
    return value.lower()


def _number(limit: str, minimum: int) -> Callable[[str, str, Config], int]:
    def read(key: str, value: str, config: Config) -> int:
        maximum: int = getattr(config.limits, limit)
        shown, digits = shortened(value), value.lstrip("0") or "0"
        whole = re.fullmatch(r"[0-9]+", value)
        # int() raises ValueError for very long numbers.
        if whole and (len(digits) > MAX_DIGITS or int(digits) > maximum):
            raise UserError(f"{key}= can be at most {maximum} on this cluster (limits.{limit}); got {shown}.")
        if not whole or int(digits) < minimum:
            raise UserError(f'{key}= must be a whole number from {minimum} to {maximum}; got "{shown}".')
        return int(digits)

    return read


def is_auto(value: str) -> bool:
    """Return whether Sweepbot chooses the number of parallel trials."""
    return value.lower().partition(":")[0] == AUTO


def _parallel(key: str, value: str, config: Config) -> int:
    """Return the number, or for `auto` and `auto:8` the maximum."""
    if value.lower() == AUTO:
        return config.limits.parallel
    return _number("parallel", 1)(key, value.partition(":")[2] if is_auto(value) else value, config)


def _algorithm(_key: str, value: str, _config: Config) -> str:
    name = value.lower()
    matches = [each for each in ALGORITHMS if len(name) >= PREFIX_MIN and each.startswith(name)]
    if name in ALGORITHMS or len(matches) == 1:
        return name if name in ALGORITHMS else matches[0]
    if why := rejection(name):
        raise UserError(f"algorithm={why}.")
    hint = did_you_mean(name, ALGORITHMS)
    raise UserError(f'algorithm= must be a search algorithm; got "{shortened(value)}".{hint}')


def _gate(_key: str, value: str, _config: Config) -> bool:
    if value.lower() not in _SWITCH:
        raise UserError(f'gate= must be on or off; got "{shortened(value)}".')
    return _SWITCH[value.lower()]


def _max_hours(_key: str, value: str, _config: Config) -> float:
    """Read hours from one minute on; the upper bound only keeps the deadline a valid date."""
    is_number = re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", value)
    if not is_number or not A_MINUTE <= float(value) <= MAX_HOURS:
        allowed = f"a number of hours from 0.02 (one minute) to {MAX_HOURS}"
        raise UserError(f'max_hours= must be {allowed}; got "{shortened(value)}".')
    return float(value)


def _queue(_key: str, value: str, config: Config) -> str:
    return queue_option(value, config.queueing, config.teams)


def _priority(_key: str, value: str, config: Config) -> str:
    return priority_option(value, config.queueing)


def _cluster(_key: str, value: str, config: Config) -> str:
    return cluster_option(value, config.clusters)


READERS: dict[str, Callable[[str, str, Config], Any]] = {
    "branch": _branch,
    "gpus": _number("gpus_per_trial", 0),
    "space": _space,
    "repo": _repo,
    "parallel": _parallel,
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
    "gate": _gate,
    "max_hours": _max_hours,
    "profile": _profile,
    "nodes": _number("nodes_per_trial", 1),
    "queue": _queue,
    "priority": _priority,
    "cluster": _cluster,
}


def unknown_option(typed: str) -> str:
    """Return the error for an option that doesn't exist, with where its value is set instead."""
    key, shown = typed.lower(), f"Unknown option: `{shortened(typed)}=`."
    if key in KEYS:
        return f"{shown} Set `{key}:` in the space file."
    if key in RESOURCES:
        return f"{shown} CPU and memory come with `gpus=` or `profile=` (a machine type)."
    hint = did_you_mean(key, READERS)
    return f"{shown}{hint}{' All options: `/sweep help`.' if hint.startswith(' Available') else ''}"
