"""YAML files with positions, so that every complaint about a space or the configuration names its line.

A value that is not what it should be is complained about and read as something harmless, so that one reading
finds everything; `Node.check` raises before anyone uses what was read.
"""

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from bot.core.errors import UserError
from bot.core.numbers import NUMBER
from bot.core.wording import counted, did_you_mean, listed, shortened

MAX_CHARACTERS = 64_000
MAX_NODES = 5_000  # counted after aliases are followed: nine lines of anchors can mean a billion values
MAX_DEPTH = 12
MAX_COMPLAINTS = 20  # of a file; whoever has more mends these first
MAX_NUMBER = 1_000  # characters; no rule for numbers looks at a longer scalar
YAML = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    """YAML 1.1, except that 1e-4 is a number, and that on, off, yes, no and dates are words."""

    yaml_implicit_resolvers = {  # noqa: RUF012, PyYAML's own way
        first: [(tag, rule) for tag, rule in rules if tag in {YAML + "int", YAML + "float", YAML + "null"}]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        if kind is yaml.ScalarNode and implicit[0] and len(value) > MAX_NUMBER:
            return YAML + ("int" if value.isdigit() else "str")
        tag: str = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        return tag

    def fetch_more_tokens(self) -> None:
        """PyYAML looks at every open bracket for each token, and calls itself for each level."""
        if self.flow_level + len(self.indents) > MAX_DEPTH:
            problem = f"nested more than {MAX_DEPTH} levels deep"
            raise yaml.scanner.ScannerError(problem=problem, problem_mark=self.get_mark())
        super().fetch_more_tokens()


# YAML 1.1 asks for a dot and a signed exponent, so PyYAML reads 1e-4 as a string.
_EXPONENT = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$")
_Loader.add_implicit_resolver(YAML + "float", _EXPONENT, list("-+0123456789."))
_Loader.add_implicit_resolver(YAML + "bool", re.compile("(true|True|TRUE|false|False|FALSE)$"), list("tTfF"))


@dataclass(frozen=True)
class Node:
    """One value of a file and where it stands."""

    file: str
    line: int
    path: str  # "parameters.lr.min"; empty for the whole file
    value: Any  # a scalar, a list of Nodes, or a dict of Nodes by key
    raw: str = ""  # a scalar as it was written, without quotes
    complaints: list[tuple[int, str]] = field(default_factory=list, repr=False)  # of the whole file

    def wrong(self, sentence: str) -> None:
        about = f"{self.path}: " if self.path else ""
        self.complaints.append((self.line, f"{self.file}:{self.line}: {about}{sentence}"))

    def check(self) -> None:
        """Raises UserError with the first complaints about the file, in file order."""
        if found := [sentence for _, sentence in sorted(self.complaints, key=lambda c: c[0])]:
            more = len(found) - MAX_COMPLAINTS
            last = [f"{self.file}: … and {counted(more, 'more error')}"] if more > 0 else []
            raise UserError("\n".join([*found[:MAX_COMPLAINTS], *last]))

    def mapping(self, known: tuple[str, ...] = (), must: tuple[str, ...] = ()) -> dict[str, "Node"]:
        """The values by key; `known` keys only, when there are any."""
        if not isinstance(self.value, dict):
            self.wrong(f"must be a mapping{' with ' + listed(known) if known else ''}, not {self.described}")
            return {}
        for key, node in self.value.items() if known else ():
            if key not in known:
                node.wrong(f"this key is unknown.{did_you_mean(key, known)}")
        for key in must:
            if key not in self.value:
                self.wrong(f"{key} is missing")
        return self.value

    def items(self) -> list["Node"]:
        if isinstance(self.value, list):
            return self.value
        self.wrong(f"must be a list, not {self.described}")
        return []

    def text(self) -> str:
        if isinstance(self.value, str) and self.value.strip():
            return self.value
        self.wrong(f"must be text, not {self.described}")
        return ""

    def number(self) -> float | int:
        if isinstance(self.value, str) and NUMBER.fullmatch(self.value):
            self.wrong(
                f"{self.described} is quoted, so it is text; write {shortened(self.raw)} without quotes"
            )
        elif isinstance(self.value, bool) or not isinstance(self.value, int | float):
            self.wrong(f"must be a number, not {self.described}")
        elif not -1e300 < self.value < 1e300:  # also false for NaN
            self.wrong("must be a finite number")
        else:
            return self.value
        return 0

    def whole(self) -> int:
        number = self.number()
        if isinstance(number, int):
            return number
        self.wrong(f"must be a whole number, not {self.raw}")
        return 0

    def flag(self) -> bool:
        if self.raw not in {"true", "false"}:
            self.wrong(f"{self.described} must be true or false")
        return self.raw == "true"

    @property
    def described(self) -> str:
        if isinstance(self.value, dict | list):
            return "a mapping" if isinstance(self.value, dict) else "a list"
        return f'"{shortened(self.raw)}"' if self.raw else "nothing"


def read(text: str, file: str) -> Node:
    """Raises UserError for what is not YAML, or not one modest document."""
    if len(text) > MAX_CHARACTERS:
        raise UserError(f"{file}: the file is too long ({len(text)} characters, at most {MAX_CHARACTERS})")
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise UserError(f"{file}:{mark.line + 1 if mark else 1}: {_syntax(error)}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UserError(f"{file}:{line}: a character that YAML does not allow ({error.reason})") from error
    except (ValueError, OverflowError) as error:  # %YAML with thousands of digits, "\UFFFFFFFF"
        line = loader.line + 1
        raise UserError(f"{file}:{line}: this is not YAML: a number here is too large") from error
    if root is None:
        raise UserError(f"{file}: the file is empty")
    return _Reader(file, loader).node(root, "", root.start_mark.line + 1)


def _syntax(error: yaml.MarkedYAMLError) -> str:
    problem = str(error.problem or error.context)
    return "a tab; indent with blanks" if r"'\t'" in problem else f"this is not YAML: {problem}"


class _Reader:
    """From PyYAML's nodes to ours."""

    def __init__(self, file: str, loader: _Loader) -> None:
        self.file, self.loader, self.count = file, loader, 0
        self.complaints: list[tuple[int, str]] = []

    def node(self, source: yaml.Node, path: str, line: int, depth: int = 0) -> Node:
        self.count += 1
        if self.count > MAX_NODES or depth > MAX_DEPTH:
            raise UserError(f"{self.file}:{line}: too many values or levels; anchors may not multiply them")
        if isinstance(source, yaml.MappingNode):
            return Node(self.file, line, path, self.pairs(source, path, depth), "", self.complaints)
        if isinstance(source, yaml.SequenceNode):
            items = enumerate(source.value, 1)
            value = [self.node(n, f"{path}[{i}]", n.start_mark.line + 1, depth + 1) for i, n in items]
            return Node(self.file, line, path, value, "", self.complaints)
        return Node(self.file, line, path, self.scalar(source, line), source.value, self.complaints)

    def pairs(self, source: yaml.MappingNode, path: str, depth: int) -> dict[str, Node]:
        pairs: dict[str, Node] = {}
        for key, value in source.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else "?"
            where = shortened(f"{path}.{name}" if path else name)
            below = self.node(value, where, key.start_mark.line + 1, depth + 1)
            if name in pairs:
                below.wrong(f"this key stands here twice, first in line {pairs[name].line}")
            pairs.setdefault(name, below)
        return pairs

    def scalar(self, source: yaml.Node, line: int) -> Any:
        tag = source.tag.removeprefix(YAML)
        known = tag in {"int", "float", "bool", "null"} and len(source.value) <= MAX_NUMBER
        try:
            if known or tag == "str":
                return self.loader.construct_object(source)
        except (ValueError, KeyError):  # !!int x, !!bool x, and int() refuses thousands of digits
            pass
        raise UserError(f"{self.file}:{line}: {source.value[:40]} cannot be read as {shortened(tag)}")
