"""Read typed commands by declared tables (quotes, links, commas, `gpus: 1`), with help, usage, and errors:
unknown commands and options, unclosed quotes, missing words. Pure.

From a `Table` come parsing, errors, suggestions, usage, and help. Everywhere alike: phones' quotes and
dashes, no-break spaces, Slack's links and escapes, pasted formatting, commas, question marks, politeness,
and options as `gpus=1`, `gpu=1`, `gpus: 1`, or `--gpus 1`.
"""

import contextlib
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from difflib import get_close_matches
from functools import cached_property
from types import MappingProxyType
from typing import Any

from bot.core.errors import UserError
from bot.platform.commands.option_types import Choice, Duration, Type
from bot.text.wording import did_you_mean, fitting, listed, shortened

MAX_TEXT = 8_000  # characters of a command
MAX_ERRORS_TEXT = 2_500  # characters of all errors together
MAX_SUGGESTIONS = 10  # unknown options compared with all known ones; a command has room for 2,000
SIMILARITY = 0.7  # 0 to 1, for commands: `cancle` is cancel, but `main` isn't drain
# A link as Slack sends it: after repo=, use its URL, elsewhere its label, which is what the user typed.
_LINK = re.compile(r"""((?i:repo)=["']?)?<([a-z][a-z0-9+.-]*:[^|<>]+)(?:\|([^<>]*))?>""")
_MARKS = ("```", "`", "*", "_")  # code, bold, and italic; what is struck through isn't meant
_AHEAD = re.compile(
    r"(?:[\s,;•>]|&gt;|-\s)+|(?:hi|hey|hello|sweepbot|please|pls|(?:can|could|would) you)\b[\s,!]*(?=\S)",
    re.IGNORECASE,
)
POLITE = {"please", "pls", "plz", "plzz", "thanks", "thnx", "thx", "tnx", "ty", "tysm", "tyvm", "cheers"}
_SMILE = re.compile(r":[a-z0-9_+-]+:|[:;]-?\)")  # an emoji as Slack sends it, or a typed one
MAX_AHEAD = 5  # such words before or after a command
_PAIR = re.compile(r"(-{0,2})([^\s=:]*?)\s*([=:])(.*)", re.DOTALL)
_APOSTROPHE = re.compile(r"(?<=\w)'(?=\w)")
# And no-break spaces. Invisible characters, which pasted text can have, are removed.
_QUOTES = str.maketrans("“”„‟‘’‚‛\u00a0", "\"\"\"\"'''' ", "\u200b\u200e\u200f\u2060\ufeff")


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


def unformatted(text: str) -> str:
    """Remove what Slack's formatting puts around a text: code, bold, and italic."""
    text = text.strip()
    for mark in _MARKS:
        is_around = text.startswith(mark) and text.endswith(mark) and text.count(mark) == 2
        if is_around and len(text) > 2 * len(mark):
            return text.removeprefix(mark).removesuffix(mark).strip()
    return text


def plain_words(text: str) -> str:
    """Remove formatting, a quotation's or a list's mark, a greeting, and politeness around a command."""
    for _ in range(MAX_AHEAD):
        text = unformatted(text)
        text = text[1:-1] if text[:1] == text[-1:] == '"' and text.count('"') == 2 else text
        if ahead := _AHEAD.match(text):
            text = text[ahead.end() :]
        before, _, last = text.rpartition(" ")
        if before and (_SMILE.fullmatch(last) or last.strip(",.!").lower() in POLITE):
            text = before.rstrip(" ,")
    return text


def bare(word: str) -> str:
    """Remove formatting, punctuation, and what is left of quotes around a word that isn't free text."""
    return unformatted(word.strip("`,;?\"'"))


def split(text: str) -> list[str]:
    """Return the words, with their quotes undone. Raises UserError if it is too long or a quote is open."""
    text = unescape(text)
    if len(text) > MAX_TEXT:
        raise UserError(f"The command can have at most {MAX_TEXT:,} characters; got {len(text):,}.")
    for tried in (text, _APOSTROPHE.sub(r"\'", text)):
        with contextlib.suppress(ValueError):
            return [word for word in shlex.split(tried) if bare(word)]
    raise UserError(f'Unclosed quote. Write `cmd="python train.py"`. Got: {shortened(text)}')


def pairs(words: Iterable[str], command: "Command") -> Iterator[tuple[str, str]]:
    """Yield key and value of each option, and "" and the word for each other word.

    `gpus=1`, `gpu=1`, `gpus: 1`, `gpus = 1`, `--gpus=1`, and `--gpus 1` are alike. Only with `=`, the key can
    be unknown.
    """
    left = list(words)[::-1]
    while left:
        word = left.pop()
        found, following = _PAIR.fullmatch(unformatted(word)), left[-1] if left else ""
        key = command.key_of(found[2] if found else word.lstrip("-"))
        if found and (key or (found[3] == "=" and bare(found[2]))):
            value = found[4]
            if key and not value and following and not _PAIR.fullmatch(following):
                value = left.pop()
            if not (key and command.by_key[key].free) and (glued := _glued(value, command)):
                value, rest = value[: glued.start()], value[glued.end() :]
                left.append(rest)
            yield key or bare(found[2]).lower(), value
        elif key and following[:1] in {"=", ":"}:
            value = left.pop()[1:]
            yield key, value or (left.pop() if left else "")
        elif key and word.startswith("--") and following and not following.startswith("--"):
            yield key, left.pop()
        else:
            yield "", word


def _glued(value: str, command: "Command") -> re.Match[str] | None:
    """Find the sign between `main` and the next option in `branch=main,space=lr`."""
    signs = re.finditer(r"[,;&](?=([a-zA-Z_-]+)[=:])", value)
    return next((each for each in signs if command.key_of(each[1])), None)


@dataclass(frozen=True)
class Option:
    """An option `key=`."""

    key: str
    type: Type
    group: str = ""  # where the help lists it
    meaning: str = ""  # its note there
    label: str = ""  # in a form; "" has no field there
    hint: str = ""  # in a form, or, for a word, after the usage
    _: KW_ONLY
    example: str = ""  # of the value, in the usage
    required: bool = False
    word: bool = False  # the value can stand alone: `cancel otter` for `cancel sweep=otter`
    many: bool = False  # a word that can be repeated; the value is a tuple
    commas: bool = False  # the value can be several, with commas between
    free: bool = False  # punctuation and formatting belong to the value
    whole: bool = False  # the value is all of the text after the command, as typed
    said: tuple[str, ...] = ()  # words for it in a sentence, beside the key: `4 cards`
    after: tuple[str, ...] = ()  # words before its value: `on main`
    means: Mapping[str, str] = field(default_factory=dict)  # phrases that are a value: `by dm`
    span: str = ""  # a pattern of a value that is several words in a sentence: `from 22 to 7`
    units: Mapping[str, float] = field(default_factory=dict)  # of one after a number: `2 days` are 48 hours

    @property
    def usage(self) -> str:
        """`[SWEEP]`, `[mine|running]`, `trials=20`."""
        names = self.type.names if isinstance(self.type, Choice) else ()
        words = "|".join(names) if isinstance(names, tuple | dict) else ""
        text = (words or self.key.upper()) if self.word else f"{self.key}={self.example}"
        return f"{text} …" if self.many else text if self.required else f"[{text}]"

    def read(self, text: str, context: Any) -> Any:
        """Return the value. Raises UserError."""
        key = self.key.upper() if self.word else self.key
        if self.many:
            return tuple(self.type(key, each, context) for each in re.split(r"[\s,]+", text))
        return self.type(key, text, context)


@dataclass(frozen=True, eq=False)
class Command:
    """A command of one word or two: `queue move`. Each is one object, by which it is looked up."""

    name: str
    does: Any = None  # for the code of the wing
    options: tuple[Option, ...] = ()
    group: str = ""  # where the help lists it
    meaning: str = ""
    _: KW_ONLY
    usage: str = ""  # what follows the name, unless it is that of the options
    aliases: tuple[str, ...] = ()
    said: str = ""  # words that ask for it, `in-this-order`, and in parentheses those that support others
    answers: bool = False  # changes nothing, so a sentence that asks for it is answered
    elsewhere: Callable[[str], str] = lambda _key: ""  # where a value without an option is set, or ""

    @cached_property
    def by_key(self) -> dict[str, Option]:
        return {each.key: each for each in self.options}

    @cached_property
    def verbs(self) -> list[str]:
        """Return the words each of which asks for it."""
        return self.said.partition("(")[0].split()

    @cached_property
    def words(self) -> list[str]:
        """Return the verbs, and then the words that support them."""
        return re.sub("[()]", " ", self.said).split()

    def key_of(self, text: str) -> str:
        """Return the option that a typed key means, also in the singular or plural; "" for none."""
        key = bare(text).lower().replace("-", "_")
        return next((each for each in (key, f"{key}s", key.removesuffix("s")) if each in self.by_key), "")


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """What was typed. `values` checks it."""

    command: Command
    options: Mapping[str, str] = field(default_factory=dict)  # as typed, by key
    errors: tuple[str, ...] = ()  # of words that set none

    @property
    def typed(self) -> str:
        """Return the options as they can be typed."""
        words = [each.key for each in self.command.options if each.word]
        ordered = sorted(self.options.items(), key=lambda each: [*words, each[0]].index(each[0]))
        return " ".join(v if k in words else f"{k}={shlex.quote(v)}" for k, v in ordered)

    def values(self, context: Any = None) -> dict[str, Any]:
        """Return the values of the options. Raises UserError with all errors, a line each."""
        values, invalid = read_values(self.command.options, self.options, context)
        if errors := [*self.errors, *invalid.values()]:
            raise errors_of(errors)
        return values


def errors_of(errors: Iterable[str]) -> UserError:
    return UserError("\n".join(fitting(errors, MAX_ERRORS_TEXT)))


def read_values(
    options: Iterable[Option], given: Mapping[str, str], context: Any
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the value of each given option, and an error for each key with an invalid one."""
    values: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for option in options:
        try:
            if option.key in given:
                values[option.key] = option.read(given[option.key], context)
        except UserError as error:
            errors[option.key] = str(error)
    return values, errors


HELPS = (
    "command manual man example docs documentation tutorial hello hi hey what-can-you what-can-i how-do-i "
    "do-i-get-environment "
    "how-do-you "
    "how-does how-to how-use how-can-i how-i-do what-do-you-do what-option which-option option-accept "
    "help-me "
    "what-happen-if "
    "would-happen-if "
    "what-happen-when if-i-cancel do-i-lose will-i-lose what-mean explain definition if-i-pause "
    "would-it-lose "
    "lose-trial difference-between "
    "do-exactly "
    "who-are-you what-are-you introduce get-started getting-started new-here i-allowed allowed permission "
    "(what does do mean work help)"
)
HELP = Command("help", aliases=("?",), said=HELPS, answers=True)
NONE_GIVEN: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Table:
    """The commands after `prefix`. The one named "" needs no word: any text can be that of its options."""

    prefix: str
    commands: tuple[Command, ...]
    note: str = ""  # after the error of an unknown command
    about: str = ""  # a word that supports all of its commands
    section: str = ""  # of the configuration, which the options' types get instead of all of it

    def context(self, config: Any) -> Any:
        """Return what the options' types get; None if it isn't configured."""
        return getattr(config, self.section) if self.section else config

    @cached_property
    def _by_name(self) -> dict[str, Command]:
        return {name: each for each in (*self.commands, HELP) for name in (each.name, *each.aliases)}

    def find(self, text: str) -> tuple[Command, str]:
        """Return the command and what follows its words. Raises UserError with a suggestion."""
        text = plain_words(text)
        words = [bare(unescape(word)).lower() or word for word in text.split(maxsplit=2)[:2]]
        first = words[0] if words else ""
        below = [name.partition(" ")[2] for name in self._by_name if name.startswith(f"{first} ")]
        for count in range(len(words), 0, -1):
            found = self._by_name.get(" ".join(words[:count]))
            if found and not (words[count:] and below and not found.options):
                return found, "".join(text.split(maxsplit=count)[count:])
        if not words and "" in self._by_name:
            return self._by_name[""], ""
        return self._guess(words, below, text)

    def _guess(self, words: list[str], below: list[str], text: str) -> tuple[Command, str]:
        """Return the command that needs no word, unless the first one is like that of another."""
        (word, second), default = (*words, "", "")[:2], self._by_name.get("")
        meant = next((each.name for each in self.commands if word and word in each.words), word)
        heads = dict.fromkeys(each.name.partition(" ")[0] for each in (*self.commands, HELP) if each.name)
        if below:
            word, hint = " ".join(words), did_you_mean(second, below)
        elif default and default.options:
            near = get_close_matches(meant, heads, cutoff=SIMILARITY)
            if not near or "=" in word or second.startswith("="):
                return default, text
            hint = f" Did you mean {listed(near, 'or')}?"
        else:
            hint = did_you_mean(meant, heads)
        raise UserError(f"Unknown command `{shortened(word).replace('`', 'ˋ')}`.{hint}{self.note}")

    def usage(self, command: Command) -> str:
        """`/sweep extend [SWEEP] trials=20`: run more trials."""
        words = (self.prefix, command.name, command.usage or " ".join(each.usage for each in command.options))
        return f"`{' '.join(filter(None, words))}`{command.meaning and f': {command.meaning}'}"

    def help_of(self, group: str) -> str:
        """Return a line for each command of a group."""
        return "\n• ".join(
            [f"*{group}*", *(self.usage(each) for each in self.commands if each.group == group)]
        )

    def parse(self, text: str, context: Any = None, given: Mapping[str, str] = NONE_GIVEN) -> Parsed:
        """Parse a command. `given`: options that need not be typed.

        Raises UserError if the command is unknown or too long, or has an unclosed quote.
        """
        return self.read(*self.find(text), context, given)

    def read(
        self, command: Command, rest: str, context: Any = None, given: Mapping[str, str] = NONE_GIVEN
    ) -> Parsed:
        """Parse what follows the words of a command. Raises UserError."""
        options = {key: value for key, value in given.items() if key in command.by_key}
        errors, loose = list[str](), list[str]()
        whole = next((each.key for each in command.options if each.whole), "")
        if whole and rest.strip():
            return Parsed(command=command, options={**options, whole: unescape(rest).strip()})
        for key, value in pairs(split(rest), command):
            if not key:
                loose += [value] if bare(value).lower() not in given.values() else []
            elif key not in command.by_key:
                errors.append(self.unknown(command, key, suggest=len(errors) < MAX_SUGGESTIONS))
            elif key in options:
                errors.append(f"`{key}=` is set twice.")
            else:
                options[key] = value if command.by_key[key].free else bare(value)
        misused = _misuse(command, loose, options, context)
        if misused:
            hints = [each.hint for each in command.options if each.word and each.hint]
            errors.insert(0, " ".join([*misused, f"Usage: {self.usage(command)}.", *hints]))
        return Parsed(command=command, options=options, errors=tuple(errors))

    def unknown(self, command: Command, key: str, *, suggest: bool) -> str:
        hint = ""
        if suggest:
            elsewhere = command.elsewhere(key)
            hint = f" {elsewhere}" if elsewhere else did_you_mean(key, command.by_key)
            hint += f" All options: `{self.prefix} help`." if hint.startswith(" Available") else ""
        return f"Unknown option: `{shortened(key)}=`.{hint}"


def _misuse(command: Command, loose: list[str], options: dict[str, str], context: Any) -> list[str]:
    """Set for each word without a key the option that takes it. Return what is wrong."""
    unknown, errors = list[str](), list[str]()
    for word in loose:
        free = [each for each in command.options if each.word and (each.many or each.key not in options)]
        if not free or len(errors) >= MAX_SUGGESTIONS:
            unknown.append(f"`{shortened(word)}`")
        elif error := _take(bare(word), free, options, context):
            errors.append(error)
    missing = [each for each in command.options if each.required and each.key not in options]
    names = [each.key.upper() if each.word else f"{each.key}=" for each in missing]
    return [
        *([f"Unknown argument{'s' if unknown[1:] else ''}: {listed(unknown)}."] if unknown else []),
        *errors,
        *([f"Missing {listed(names)}."] if names else []),
    ]


def _take(word: str, free: list[Option], options: dict[str, str], context: Any) -> str:
    """Set the first option that takes a word: a choice, a time, or the next name. Return an error, or ""."""
    special = [each for each in free if isinstance(each.type, Choice | Duration)]
    tried = [*special, *[each for each in free if each not in special][:1]]
    errors: dict[str, str] = {}
    for option in tried:
        try:
            option.read(word, context)
        except UserError as error:
            errors[option.key] = str(error)
        else:
            options[option.key] = f"{options.get(option.key, '')} {word}".strip()
            return ""
    return next(errors[each.key] for each in free if each.key in errors)


def option_help(options: Iterable[Option]) -> str:
    """Return a line for each group of options."""
    groups: dict[str, list[str]] = {}
    for each in options:
        groups.setdefault(each.group, []).append(f"`{each.key}=`{each.meaning and f' ({each.meaning})'}")
    return "\n".join(f"• {group or 'Options'}: {', '.join(texts)}" for group, texts in groups.items())
