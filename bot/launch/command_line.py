"""From the text after /sweep to a SweepRequest. Pure."""

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from bot.config.policy import Config, ready_image, repository
from bot.core.errors import UserError
from bot.core.request import Notify, SweepRequest
from bot.core.space import ALGORITHMS
from bot.core.wording import did_you_mean, fitting, listed, shortened

DIGITS = 40  # of a number: more of them are above every limit
NEAR = 0.6  # of 1: `brnch` is branch, but `user` is not gpus
PREFIX = 3  # letters of an algorithm's name
EXAMPLE = "`/sweep branch=main gpus=1 space=lr`"
HELP = f"""*Start a sweep:* {EXAMPLE} builds that branch and searches what `sweeps/lr.yaml` in it says, \
with one GPU per trial. `/sweep` alone opens a form.
You may add `repo=` (name or URL), `image=` (a ready one: nothing is built), `trials=`, `parallel=`, \
`algorithm=` ({", ".join(ALGORITHMS)}), `name=` and `cmd=`, for example
`/sweep branch=fix/loss space=lr gpus=2 trials=20 parallel=4 cmd="python train.py --epochs=3"`
`notify=dm` tells you the end in a direct message and not in the channel, `notify=none` only in the thread.
*Later:* `/sweep list`, `status`, `results`, `logs`, `cancel`, `drain` (start no more trials), \
`extend trials=20` (in all) and `rerun`, with what should differ. After the word you may name the sweep, \
or the beginning or end of its name, and after `cancel` and `logs` a trial, too.
In a sweep's thread mention me, for example `@sweepbot logs`; but in direct messages I hear nothing.
*GPUs:* `/gpus` says what is free, `/gpus help` what else it knows.
*Administrators:* `/sweep doctor` checks everything that sweeps need; `/sweep setup` gives a channel \
a repository and a daily digest; `/sweep release NAME` retries what Sweepbot quarantined."""

# A link as Slack sends it; after repo= the address is meant, elsewhere what the person had typed.
_LINK = re.compile(r"""((?i:repo)=["']?)?<((?:https?://|mailto:)[^|<>]+)(?:\|([^<>]*))?>""")
_QUOTES = str.maketrans("“”„‟‘’‚‛\u00a0", "\"\"\"\"'''' ")  # and blanks that are pasted
COMMAND_MOST = 8_000  # characters, with the command line of a training
WRONG_MOST = 2_500  # characters of what is wrong
STARTERS = ("run", "start", "launch", "new")  # a word that means nothing more than /sweep itself
_SEPARATORS = ",;"  # that phones and habit put between words; in these two they may be meant
_FREE = {"cmd", "name"}
# What git check-ref-format refuses; a leading dash, which git would read as an option; #, which ends the
# branch in the address that Kaniko gets; and $(, which Kubernetes replaces by variables.
_NO_REF = re.compile(r"^[-/.]|\$\(|[\x00-\x20\x7f~^:?*#\[\\]|\.\.|//|/\.|@\{|\.lock(/|$)|[/.]$|^@$")


def parse(text: str, config: Config) -> SweepRequest:
    """Raises UserError with one line for each thing that is wrong."""
    said, wrong = _words(unescape(text))
    missing = [key for key in ("branch", "space") if key not in said]
    if missing and not wrong:
        wrong.append(f"Say which {listed(missing)} to use, for example {EXAMPLE}.")
    values, troubles = read_values(said, config)
    wrong += troubles.values()
    if wrong:
        raise _refusal(wrong)
    return SweepRequest(**values)


def words(text: str) -> dict[str, str]:
    """What was typed, by key, complete or not. Raises UserError for what can't be read as key=value."""
    said, wrong = _words(unescape(text))
    if wrong:
        raise _refusal(wrong)
    return said


def read_values(said: Mapping[str, str], config: Config) -> tuple[dict[str, Any], dict[str, str]]:
    """The fields of a SweepRequest, and a sentence for each key whose value is wrong."""
    values: dict[str, Any] = {"gpus": min(1, config.limits.gpus_per_trial)}
    wrong: dict[str, str] = {}
    for key, value in said.items():
        try:
            values[key] = _READERS[key](key, value, config)
        except UserError as error:
            wrong[key] = str(error)
    if "trials" in values and values.get("parallel", 0) > values["trials"]:
        wrong["parallel"] = f"parallel={values['parallel']} is more than trials={values['trials']}."
    return values, wrong


def changed(request: SweepRequest, text: str, config: Config) -> SweepRequest:
    """The same request but for what is said, of the branch as it is now. Raises UserError."""
    said = words(text)
    values, wrong = read_values(said, config)
    after = replace(request, commit=None, **{key: values[key] for key in said if key in values})
    if not wrong and after.parallel and after.trials and after.parallel > after.trials:
        wrong["parallel"] = f"parallel={after.parallel} is more than trials={after.trials}."
    if wrong:
        raise _refusal(wrong.values())
    return after


def _refusal(wrong: Iterable[str]) -> UserError:
    return UserError("\n".join(fitting(wrong, WRONG_MOST)))


def unescape(text: str) -> str:
    """Slack escapes three characters, turns addresses into links; phones curl quotes and join two dashes."""
    text = _LINK.sub(_typed, text).translate(_QUOTES)
    text = re.sub(r"(?<!\w)—(?=\w)", "--", text)
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _typed(link: re.Match[str]) -> str:
    repo, address, label = link[1] or "", link[2], link[3]
    if repo and address.startswith("http"):
        return repo + address
    return repo + (label or address.removeprefix("mailto:"))


def _words(text: str) -> tuple[dict[str, str], list[str]]:
    if len(text) > COMMAND_MOST:
        raise UserError(f"The command can have at most {COMMAND_MOST:,} characters; got {len(text):,}.")
    try:
        words = shlex.split(text)
    except ValueError:
        raise UserError(
            f'A quote is not closed. Put both quotes, as in `cmd="python train.py"`: {shortened(text)}'
        ) from None
    words = [word for word in words if word.strip(_SEPARATORS)]
    if words and words[0].lower() in STARTERS:
        del words[0]
    said: dict[str, str] = {}
    wrong: list[str] = []
    strange = [f"`{shortened(word)}`" for word in words if word.find("=") < 1]
    if strange:
        wrong.append(
            f"I do not understand {listed(strange)}. Write key=value without blanks, for example {EXAMPLE}; "
            "`/sweep help` has the other words."
        )
    for typed, _, value in (word.partition("=") for word in words if word.find("=") > 0):
        key = typed.lower()
        if key not in _READERS:
            wrong.append(f"Unknown option: `{shortened(typed)}=`.{did_you_mean(key, _READERS, NEAR)}")
        elif key in said:
            wrong.append(f"`{key}=` is set twice.")
        else:
            said[key] = value if key in _FREE else value.rstrip(_SEPARATORS)
    return said, wrong


def _branch(_key: str, value: str, _config: Config) -> str:
    if not value or _NO_REF.search(value):
        raise UserError(f"branch={shortened(value)} is not the name of a branch or a tag.")
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
    ready_image(value, config)
    return value


def _name(_key: str, value: str, _config: Config) -> str:
    if not 1 <= len(value) <= 30 or not value.isprintable() or not value.strip():
        raise UserError(f"name={shortened(value)} must have 1 to 30 characters in one line.")
    return value


def _cmd(_key: str, value: str, _config: Config) -> str:
    if not value.strip():
        raise UserError('cmd= is empty: write cmd="python train.py", or leave it out.')
    return value


def _notify(_key: str, value: str, _config: Config) -> Notify:
    if value.lower() not in set(Notify):
        raise UserError(f'notify= must be channel, dm, or none; got "{shortened(value)}".')
    return Notify(value.lower())


def _number(limit: str, least: int) -> Callable[[str, str, Config], int]:
    def read(key: str, value: str, config: Config) -> int:
        most: int = getattr(config.limits, limit)
        shown, digits = shortened(value), value.lstrip("0") or "0"
        whole = re.fullmatch(r"[0-9]+", value)
        # Python refuses to read very long numbers, with an error of its own.
        if whole and (len(digits) > DIGITS or int(digits) > most):
            raise UserError(f"{key}= can be at most {most} on this cluster (limits.{limit}); got {shown}.")
        if not whole or int(digits) < least:
            raise UserError(f'{key}= must be a whole number from {least} to {most}; got "{shown}".')
        return int(digits)

    return read


def _algorithm(_key: str, value: str, _config: Config) -> str:
    name = value.lower()
    begun = [each for each in ALGORITHMS if len(name) >= PREFIX and each.startswith(name)]
    if name in ALGORITHMS or len(begun) == 1:
        return name if name in ALGORITHMS else begun[0]
    meant = did_you_mean(name, ALGORITHMS, NEAR)
    raise UserError(f"algorithm={shortened(value)} is unknown.{meant}")


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
    "algorithm": _algorithm,
}
