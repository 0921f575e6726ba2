"""Parse the text after /sweep into a SweepRequest, or change a rerun's: options that are missing, or rule
each other out, such as `seeds=` and `space=`. Pure.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from bot.core.errors import UserError
from bot.core.request import SEEDS, Notify, SweepRequest
from bot.platform.commands.grammar import Command, Parsed, Table, errors_of
from bot.platform.commands.grammar import read_values as read_options
from bot.platform.config.policy import Config
from bot.platform.config.profiles import chosen
from bot.sweep.launch.options import EXAMPLE, LAUNCH, OPTIONS, is_auto
from bot.text.wording import listed

TABLE = Table(prefix="/sweep", commands=(LAUNCH,))


def parse(text: str, config: Config) -> SweepRequest:
    """Parse a complete command. Raises UserError with one line for each error."""
    return complete(TABLE.parse(text), config)


def complete(typed: Parsed, config: Config, user: str = "") -> SweepRequest:
    """Return the request with these options, and the user's own.

    Raises UserError with all errors, a line each.
    """
    errors = list(typed.errors)
    missing = missing_options(typed.options)
    if missing and not errors:
        errors.append(f"Missing {listed(f'`{key}=`' for key in missing)}. Example: {EXAMPLE}")
    values, invalid = read_values(typed.options, config)
    errors += invalid.values()
    request = None if errors else SweepRequest(**{"space": SEEDS} | own_options(user, config) | values)
    errors += conflicts(request, typed.options).values() if request else ()
    if request is None or errors:
        raise errors_of(errors)
    return request


def own_options(user: str, config: Config) -> dict[str, Notify]:
    """Return the options that the user's sweeps have unless they are typed."""
    own = config.people.get(user)
    return {"notify": Notify(own.notify)} if own and own.notify else {}


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
    if len(request.branches) > 1:
        errors["branch"] = (
            "seeds= runs one branch. Name one, or compare branches with a space, without seeds=: their "
            "finals run with seeds."
        )
    for key, value in (
        ("trials", request.trials),
        ("algorithm", request.algorithm),
        ("from", request.from_),
        ("where", request.where),
    ):
        if value is not None:
            errors[key] = f"{key}= can't be combined with seeds=: each seed is one trial. Remove {key}=."
    return errors


def parse_options(text: str, command: Command = LAUNCH) -> dict[str, str]:
    """Return the options by key; required ones can be missing. Raises UserError for a syntax error."""
    typed = TABLE.read(command, text)
    if typed.errors:
        raise errors_of(typed.errors)
    return dict(typed.options)


def read_values(options: Mapping[str, str], config: Config) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the fields of a SweepRequest, and an error for each key with an invalid value."""
    values, errors = read_options(OPTIONS, options, config)
    if not {"gpus", "profile"} & errors.keys():
        try:
            values["gpus"] = gpus_of(values.get("profile"), values.get("gpus"), config)
        except UserError as error:
            errors[error.field] = str(error)
    if "from" in values:
        values["from_"] = values.pop("from")
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
    keys = [
        *options,
        "auto",
        "from_",
        *(["gpus"] if "profile" in options else []),
    ]  # a profile brings its own GPUs
    before = {"where": None} if request.seeds else {}  # an earlier version accepted and ignored it
    after = replace(
        request,
        commit=None,
        promotes=None,
        bisects=None,
        text=None if "space" in options else request.text,
        **before | {key: values[key] for key in keys if key in values},
    )
    if not (errors or after.auto) and after.parallel and after.trials and after.parallel > after.trials:
        errors["parallel"] = _too_parallel(after.parallel, after.trials)
    errors |= conflicts(after, options)
    if errors:
        raise errors_of(errors.values())
    return after


def _too_parallel(parallel: int, trials: int) -> str:
    return f"parallel= can't exceed trials=; got parallel={parallel}, trials={trials}."
