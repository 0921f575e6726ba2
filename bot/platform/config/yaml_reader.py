"""Read YAML within limits, and word its errors with their line: invalid syntax, unknown or duplicate keys,
values of a wrong kind, without quoting what can be a secret.

An invalid value is recorded as an error and read as a harmless default, so that one pass finds all errors;
`Node.check` raises them before the values are used. What stands in place of a mapping, of a list, or of text
isn't quoted: that can be a secret, put where its name belongs. At a key with few words, a plain word is.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import yaml

from bot.core.errors import UserError
from bot.text.masking import Mask
from bot.text.number_format import NUMBER
from bot.text.wording import counted, did_you_mean, listed, shortened

MAX_CHARACTERS = 64_000
MAX_NODES = 5_000  # after aliases are expanded: nine lines of anchors can mean a billion values
MAX_DEPTH = 20  # Katib Experiments with a TFJob have up to 15
MAX_ERRORS = 20  # shown for a file
MAX_NUMBER = 1_000  # characters; longer scalars are not matched against the number patterns
YAML = "tag:yaml.org,2002:"
TYPES = {"int", "float", "bool", "null"}
PLAIN_WORD = re.compile("(?=.{1,20}$)[A-Z]?[a-z]+(?:[A-Z_-][a-z]+){0,3}")  # tokens are longer or mixed
QUOTE = "Put text that starts with ! or * in quotes"
# YAML can write these as "\0" and "\ud800", but no container, database, or message can have them.
NAMED = re.compile(r"(alias|anchor|handle) '.*")  # in PyYAML's errors: it can be text without its quotes
UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class _Loader(yaml.SafeLoader):
    """YAML 1.1, except that 1e-4 is a number, and that on, off, yes, no, and dates are strings."""

    yaml_implicit_resolvers = {  # noqa: RUF012, as PyYAML declares it
        first: [(tag, rule) for tag, rule in rules if tag in {YAML + "int", YAML + "float", YAML + "null"}]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        if kind is yaml.ScalarNode and implicit[0] and len(value) > MAX_NUMBER:
            return YAML + ("int" if value.isdigit() else "str")
        tag: str = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        return tag

    def fetch_more_tokens(self) -> None:
        """Limit the depth: PyYAML visits every open bracket for each token and recurses for each level."""
        if self.flow_level + len(self.indents) > MAX_DEPTH:
            problem = f"nested more than {MAX_DEPTH} levels deep"
            raise yaml.scanner.ScannerError(problem=problem, problem_mark=self.get_mark())
        super().fetch_more_tokens()


# YAML 1.1 requires a dot and a signed exponent, so PyYAML reads 1e-4 as a string.
_EXPONENT = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$")
_Loader.add_implicit_resolver(YAML + "float", _EXPONENT, list("-+0123456789."))
_Loader.add_implicit_resolver(YAML + "bool", re.compile("(true|True|TRUE|false|False|FALSE)$"), list("tTfF"))


@dataclass(frozen=True)
class FileError:
    line: int  # 0: an option of the command
    sentence: str
    field: str = ""  # as in UserError


@dataclass(frozen=True)
class Node:
    """One value of a file and its position."""

    file: str
    line: int
    path: str  # "parameters.lr.min"; empty for the whole file
    value: Any  # a scalar, a list of Nodes, or a dict of Nodes by key
    raw: str = ""  # a scalar as written, without quotes
    errors: list[FileError] = field(default_factory=list, repr=False)  # of the whole file

    def error(self, sentence: str) -> None:
        path = f"{self.path}: " if self.path else ""
        self.errors.append(FileError(self.line, f"{self.file}:{self.line}: {path}{sentence}"))

    def check(self) -> None:
        """Raise UserError with the first errors of the file, in file order."""
        if errors := sorted(self.errors, key=lambda error: error.line):
            found = [error.sentence for error in errors]
            more = len(found) - MAX_ERRORS
            last = [f"{self.file}: … and {counted(more, 'more error')}"] if more > 0 else []
            raise UserError("\n".join([*found[:MAX_ERRORS], *last]), field=errors[0].field)

    def mapping(
        self, known: Collection[str] | None = None, *, elsewhere: Mapping[str, str] = MappingProxyType({})
    ) -> dict[str, "Node"]:
        """Return the values by key. With `known`, others are errors.

        `elsewhere`: fixes for keys of other places.
        """
        if not isinstance(self.value, dict):
            keys = f" with {listed(known)}" if known else ""
            self.error(f"must be a mapping{keys}; got {self.kind}")
            return {}
        for key, node in self.value.items() if known else ():
            if known and key not in known:
                hint = f" {elsewhere[key]}" if key in elsewhere else did_you_mean(key, known)
                node.error(f"unknown key.{hint}")
        return self.value

    def items(self) -> list["Node"]:
        if isinstance(self.value, list):
            return self.value
        self.error(f"must be a list; got {self.kind}")
        return []

    def text(self) -> str:
        if isinstance(self.value, str) and self.value.strip():
            return self.value
        unquoted = isinstance(self.value, bool | int | float)
        self.error(f"must be text; got {self.kind}{'. Put it in quotes' if unquoted else ''}")
        return ""

    def number(self) -> float | int:
        if isinstance(self.value, str) and NUMBER.fullmatch(self.value):
            self.error(f"must be a number; got the text {self.described}. Remove the quotes.")
        elif isinstance(self.value, bool) or not isinstance(self.value, int | float):
            self.error(f"must be a number; got {self.described}")
        elif not -1e300 < self.value < 1e300:  # also false for NaN
            self.error("must be a finite number")
        else:
            return self.value
        return 0

    def whole(self) -> int:
        number = self.number()
        if isinstance(number, int):
            return number
        self.error(f"must be a whole number; got {self.raw}")
        return 0

    def flag(self) -> bool:
        if self.raw not in {"true", "false"}:
            self.error(f"must be true or false; got {self.described}")
        return self.raw == "true"

    @property
    def kind(self) -> str:
        """Return what it is, without its value."""
        kinds = {dict: "a mapping", list: "a list", bool: "a boolean", int: "a number", float: "a number"}
        return kinds.get(type(self.value), "text" if self.raw else "nothing")

    @property
    def got(self) -> str:
        """Return the end of an error at a key with few words, which quotes a word that is no secret."""
        is_plain = PLAIN_WORD.fullmatch(self.raw) and Mask()(self.raw) == self.raw
        return f'; got "{self.raw}"' if is_plain else ""

    @property
    def described(self) -> str:
        if "://" in self.raw:
            return "a URL"  # which can have a secret
        return f'"{shortened(self.raw)}"' if self.raw else self.kind


def read(text: str, file: str) -> Node:
    """Raise UserError if the text is not a single YAML document within the limits."""
    if len(text) > MAX_CHARACTERS:
        raise UserError(f"{file}: too long (the limit is {MAX_CHARACTERS:,} characters)")
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise UserError(f"{file}:{mark.line + 1 if mark else 1}: {_syntax(error)}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UserError(f"{file}:{line}: character not allowed in YAML ({error.reason})") from error
    except (ValueError, OverflowError) as error:  # %YAML with thousands of digits, "\UFFFFFFFF"
        line = loader.line + 1
        raise UserError(f"{file}:{line}: invalid YAML: a number is too large") from error
    if root is None:
        raise UserError(f"{file}: the file is empty")
    return _Reader(file, loader).node(root, "", root.start_mark.line + 1)


def _syntax(error: yaml.MarkedYAMLError) -> str:
    problem = NAMED.sub(rf"\1. {QUOTE}", str(error.problem or error.context))
    return "tabs aren't allowed; indent with spaces" if r"'\t'" in problem else f"invalid YAML: {problem}"


class _Reader:
    """Convert PyYAML's nodes."""

    def __init__(self, file: str, loader: _Loader) -> None:
        self.file, self.loader, self.count = file, loader, 0
        self.errors: list[FileError] = []

    def node(self, source: yaml.Node, path: str, line: int, depth: int = 0) -> Node:
        self.count += 1
        if self.count > MAX_NODES or depth > MAX_DEPTH:
            raise UserError(f"{self.file}:{line}: too many values or nesting levels (anchors included)")
        if isinstance(source, yaml.MappingNode):
            return Node(self.file, line, path, self.pairs(source, path, depth), "", self.errors)
        if isinstance(source, yaml.SequenceNode):
            items = enumerate(source.value)  # from 0, as in Kubernetes' own field paths
            value = [self.node(n, f"{path}[{i}]", n.start_mark.line + 1, depth + 1) for i, n in items]
            return Node(self.file, line, path, value, "", self.errors)
        raw = self.text(source)
        return Node(self.file, line, path, self.scalar(source, line), raw, self.errors)

    def pairs(self, source: yaml.MappingNode, path: str, depth: int) -> dict[str, Node]:
        pairs: dict[str, Node] = {}
        for key, value in source.value:
            name = self.text(key) if isinstance(key, yaml.ScalarNode) else "?"
            where = shortened(f"{path}.{name}" if path else name)
            below = self.node(value, where, key.start_mark.line + 1, depth + 1)
            if name in pairs:
                below.error(f"duplicate key; first set on line {pairs[name].line}")
            pairs.setdefault(name, below)
        return pairs

    def text(self, source: yaml.Node) -> str:
        if UNSTORABLE.search(source.value):
            line = source.start_mark.line + 1
            raise UserError(f"{self.file}:{line}: character not allowed (NUL, or half of a surrogate pair)")
        return str(source.value)

    def scalar(self, source: yaml.Node, line: int) -> Any:
        tag = source.tag.removeprefix(YAML)
        known = tag in TYPES and len(source.value) <= MAX_NUMBER
        try:
            if known or tag == "str":
                return self.loader.construct_object(source)
        except (ValueError, LookupError, OverflowError):  # !!int x, !!bool x, !!int "", 1:1:…:1.5
            pass
        why = f"a value can't be read as {tag}" if tag in TYPES else f"a tag isn't allowed. {QUOTE}"
        raise UserError(f"{self.file}:{line}: {why}")
