"""docs/configuration.md, docs/schemas/, and .env.example are in step with the code."""

import json
import re
from pathlib import Path

import pytest

from bot.config import policy_keys
from bot.config.keys import flat, object_schema
from bot.config.limits import Limits
from bot.config.policy import parse_config
from bot.config.settings import Settings
from bot.config.yaml_reader import Node, read
from bot.core.request import SweepRequest
from bot.services.snippet import SNIPPET_KEYS
from bot.spaces import space_keys
from bot.spaces.space import parse_space
from docs import reference

ROOT = Path(__file__).parents[2]
SPACES = sorted(
    path
    for path in ROOT.glob("examples/*/sweeps/*.yaml")
    if "sweep-files" not in path.parts  # other tools'
)
KINDS = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


def plain(node: Node) -> object:
    if isinstance(node.value, dict):
        return {key: plain(each) for key, each in node.value.items()}
    return [plain(each) for each in node.value] if isinstance(node.value, list) else node.value


def value_of(text: str) -> object:
    return plain(read(f"value: {text}", "x").value["value"])


def is_a(value: object, kind: str) -> bool:
    return isinstance(value, KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))


def fits(value: object, schema: dict) -> bool:
    """As JSON Schema has it, for the keywords that are used here; an unknown keyword fails."""
    checks = {
        "type": lambda kinds: any(
            is_a(value, each) for each in ([kinds] if isinstance(kinds, str) else kinds)
        ),
        "const": lambda one: value == one,
        "enum": lambda known: value in known,
        "not": lambda other: not fits(value, other),
        "anyOf": lambda some: any(fits(value, each) for each in some),
        "minimum": lambda least: value >= least,
        "maximum": lambda most: value <= most,
        "exclusiveMinimum": lambda least: value > least,
        "exclusiveMaximum": lambda most: value < most,
        "minLength": lambda least: len(value) >= least,
        "maxLength": lambda most: len(value) <= most,
        "minItems": lambda least: len(value) >= least,
        "minProperties": lambda least: len(value) >= least,
        "uniqueItems": lambda _: len({json.dumps(each) for each in value}) == len(value),
        "pattern": lambda pattern: not isinstance(value, str) or bool(re.search(pattern, value)),
        "items": lambda item: all(fits(each, item) for each in value),
        "required": lambda keys: {*keys} <= {*value},
        "propertyNames": lambda names: all(fits(each, names) for each in value),
        "properties": lambda keys: all(fits(value[key], each) for key, each in keys.items() if key in value),
        "additionalProperties": lambda other: all(
            other is not False and fits(each, other)
            for key, each in value.items()
            if key not in schema.get("properties", {})
        ),
    }
    notes = {"$schema", "title", "description"}
    return all(checks[keyword](rule) for keyword, rule in schema.items() if keyword not in notes)


def test_committed_reference_is_current():
    stale = [path.name for path, content in reference.files().items() if path.read_text() != content]
    assert stale == [], "run `make reference`"


def test_reference_has_every_key_and_its_anchors():
    text = (ROOT / "docs" / "configuration.md").read_text()
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert [heading.lower().replace(" ", "-") for heading in headings] == [
        "space-file",
        "configuration-file",
        "service",
        "environment",
    ]
    names = {
        *dict(flat(space_keys.KEYS)),
        *dict(flat(policy_keys.KEYS)),
        *SNIPPET_KEYS,
        *map(str.upper, Settings.model_fields),
    }
    assert set(re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)) == names


@pytest.mark.parametrize("file", SPACES, ids=lambda file: f"{file.parts[-3]}/{file.stem}")
def test_example_spaces_match_their_schema(file):
    schema = json.loads((ROOT / "docs/schemas/space.schema.json").read_text())
    assert fits(plain(read(file.read_text(), file.name)), schema)


def test_deployed_configuration_matches_its_schema():
    schema = json.loads((ROOT / "docs/schemas/config.schema.json").read_text())
    text = (ROOT / "deploy/base/config/config.yaml").read_text()
    assert fits(plain(read(text, "config.yaml")), schema)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (space_keys.KEYS, "{}"),
        (space_keys.KEYS, "{command: x, objective: {metric: a, goal: up}, parameters: {a: [1]}}"),
        (space_keys.KEYS, "{command: x, objective: {metric: a b, goal: minimize}, parameters: {a: [1]}}"),
        (space_keys.KEYS, "{command: x, objective: {metric: a, goal: minimize}, parameters: {a: []}}"),
        (space_keys.KEYS, "{command: x, objective: {metric: a, goal: minimize}, parameters: {a: {min: 1}}}"),
        (policy_keys.KEYS, "{repositories: {}}"),
        (policy_keys.KEYS, "{repositories: {a: {url: 'git@x'}}}"),
        (policy_keys.KEYS, "{repositories: {a: {url: https://x.org/a}}, limits: {hours: 2}}"),
        (policy_keys.KEYS, "{repositories: {a: {url: https://x.org/a}}, warnings: {idle_minutes: 121}}"),
        (policy_keys.KEYS, "{repositories: {a: {url: https://x.org/a}}, digests: [{hour: 24}]}"),
    ],
)
def test_invalid_configuration_does_not_match_the_schema(keys, text):
    assert not fits(value_of(text), object_schema(keys))


@pytest.mark.parametrize(
    ("path", "key"), [*flat(space_keys.KEYS), *flat(policy_keys.KEYS)], ids=lambda each: str(each)[:40]
)
def test_examples_match_their_keys(path, key):
    assert key.example or key.keys
    assert not key.example or fits(value_of(key.example), key.schema)


@pytest.mark.parametrize("name", [name for name, key in policy_keys.KEYS.items() if key.example])
def test_configuration_accepts_every_example(name):
    needed = "" if name == "repositories" else "repositories: {a: {url: https://x.org/a}}\n"
    parse_config(f"{needed}{name}: {policy_keys.KEYS[name].example}\n", "c.yaml")


@pytest.mark.parametrize("name", [name for name, key in space_keys.KEYS.items() if key.example])
def test_space_accepts_every_example(name):
    keys = space_keys.KEYS
    used = {each: keys[each].example for each in keys if keys[each].required} | {name: keys[name].example}
    used |= {"metrics": "stdout"} if name == "early_stopping" else {}
    text = "".join(f"{key}: {example}\n" for key, example in used.items())
    assert parse_space(text, "s.yaml", SweepRequest(branch="main", space="s"), Limits())
