"""The questions of `sweepbot setup` (registry, login, repositories, MLflow, admins), with the rule, default,
and error of each answer. Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import count
from typing import Annotated, Literal

import yaml
from pydantic import AfterValidator, BeforeValidator, TypeAdapter, ValidationError

from bot.core.errors import UserError
from bot.platform.config.repositories import EXAMPLE_URL, Url, bare
from bot.platform.config.rules import Count, Key, Reads, Several
from bot.platform.config.section import Section, json_schema, read_node
from bot.platform.config.settings import ImageRegistry, ShownUrl
from bot.platform.config.value_types import Member
from bot.platform.config.yaml_reader import Node, read
from k8s.objects import Manifest

MAX_ANSWER = 300  # characters
PLAIN = "http://"
_REGISTRY: TypeAdapter[str] = TypeAdapter(ImageRegistry)


def _line(text: str) -> str:
    if len(text) > MAX_ANSWER or not text.isprintable() or " " in text:
        raise ValueError(f"must be at most {MAX_ANSWER} characters without spaces and line breaks")
    return text


def _registry(text: str) -> str:
    scheme = PLAIN if text.startswith(PLAIN) else ""
    try:
        return scheme + _REGISTRY.validate_python(text.removeprefix(PLAIN).removeprefix("https://"))
    except ValidationError as error:
        raise error.errors()[0]["ctx"]["error"] from None


@dataclass(frozen=True, kw_only=True)
class Answers(Section):
    """In the order in which they are asked for."""

    registry: Annotated[
        str,
        AfterValidator(_registry),
        BeforeValidator(_line),
        Reads(Node.text),
        Key("http://registry.registry.svc:5000"),
    ]
    """Registry of images, HOST[:PORT][/PREFIX], to which builds push and from which nodes pull. http:// in
    front: it has no TLS."""
    registry_login: Annotated[Literal["secret", "none"], Reads(Node.text), Key("none")] = "secret"
    """Login at the registry: `secret` (a user and a password), or `none` (it needs none, or a cloud's
    identity has it: docs/registries.md)."""
    repositories: Annotated[Several[Annotated[Url, AfterValidator(_line)]], Count(1), Key(f"[{EXAMPLE_URL}]")]
    """Git repositories to sweep, https or http. The first is the default."""
    mlflow: Annotated[
        ShownUrl, BeforeValidator(_line), Reads(Node.text), Key("http://mlflow.mlflow.svc:5000")
    ]
    """MLflow, as trials reach it."""
    admins: Annotated[Several[Member], Key("[U012ABC]")] = ()
    """Admins of Sweepbot: Slack member IDs (Profile > More > Copy member ID)."""

    @property
    def host(self) -> str:
        """The registry without its scheme."""
        return self.registry.removeprefix(PLAIN)

    @property
    def plain_http(self) -> bool:
        return self.registry.startswith(PLAIN)

    @property
    def named_repositories(self) -> dict[str, str]:
        """Return URLs by names, which are the last parts of their paths."""
        found: dict[str, str] = {}
        for url in {bare(each): each for each in self.repositories}.values():
            found[next(name for name in _names(url) if name not in found)] = url
        return found


def _names(url: str) -> Iterator[str]:
    """Yield `digits`, `acme-digits`, and then numbered ones."""
    parts = url.rstrip("/").removesuffix(".git").lower().split("/")[3:]
    for number in range(1, len(parts) + 1):
        yield "-".join(parts[-number:]).replace("~", "-").lstrip("-._") or "repository"
    yield from (f"repository-{number}" for number in count(2))


@dataclass(frozen=True)
class Question:
    key: str
    text: str
    example: str
    default: str
    required: bool
    several: bool  # the answer is a list


def questions(suggested: Mapping[str, str]) -> list[Question]:
    """Return what to ask, from the declarations of the answers.

    Args:
        suggested: defaults that the cluster suggests.
    """
    schema: Manifest = json_schema(Answers)
    own = {each.name: each.default for each in fields(Answers) if isinstance(each.default, str)}
    return [
        Question(
            key,
            text=each["description"].replace("`", ""),
            example=each["x-example"],
            default=suggested.get(key, own.get(key, "")),
            required=key in schema["required"],
            several=each.get("type") == "array",
        )
        for key, each in schema["properties"].items()
    ]


def error_of(key: str, value: str | list[str]) -> str:
    """Return what is wrong with one answer; "" if nothing is."""
    try:
        root = read(yaml.safe_dump({key: value}), "answer")
        read_node(Answers.known()[key][0].type, root.value[key])  # type: ignore[arg-type]
        root.check()
    except UserError as error:
        return "\n".join(line.partition(": ")[2] for line in str(error).splitlines())
    return ""
