"""docs/configuration.md, docs/schemas/, and .env.example are in step with the code."""

import json
import re
from pathlib import Path

from bot.core.request import SweepRequest
from bot.platform.config.limits import Limits
from bot.platform.config.policy import Config, parse_config
from bot.platform.config.section import json_schema
from bot.platform.config.settings import Settings
from bot.platform.config.yaml_reader import Node, read
from bot.sweep.spaces.space import parse_space
from bot.sweep.spaces.space_keys import SpaceFile
from bot.workspace_table import ROOMS
from docs import reference
from tests.cases import cases

ROOT = Path(__file__).parents[2]
CONFIG, SPACE = json_schema(Config), json_schema(SpaceFile)
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
        "minItems": lambda least: not is_a(value, "array") or len(value) >= least,
        "maxItems": lambda most: not is_a(value, "array") or len(value) <= most,
        "minProperties": lambda least: len(value) >= least,
        "uniqueItems": lambda _: len({json.dumps(each) for each in value}) == len(value),
        "pattern": lambda pattern: not isinstance(value, str) or bool(re.search(pattern, value)),
        "items": lambda item: not is_a(value, "array") or all(fits(each, item) for each in value),
        "required": lambda keys: not is_a(value, "object") or {*keys} <= {*value},
        "propertyNames": lambda names: all(fits(each, names) for each in value),
        "properties": lambda keys: all(fits(value[key], each) for key, each in keys.items() if key in value),
        "additionalProperties": lambda other: (
            not is_a(value, "object")
            or all(
                other is not False and fits(each, other)
                for key, each in value.items()
                if key not in schema.get("properties", {})
            )
        ),
    }
    notes = {"$schema", "title", "description", "default", "x-default", "x-example"}
    type_first = sorted({*schema} - notes, key=lambda keyword: keyword != "type")
    return all(checks[keyword](schema[keyword]) for keyword in type_first)


def test_committed_reference_is_current():
    stale = [path.name for path, content in reference.files().items() if path.read_text() != content]
    assert stale == [], "run `make reference`"


def test_reference_has_every_key_and_its_anchors():
    text = (ROOT / "docs" / "configuration.md").read_text()
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert [heading.lower().replace(" ", "-") for heading in headings] == [
        "space-file",
        "configuration-file",
        *(heading.lower() for room in ROOMS for heading in room.formats),
        "environment",
    ]
    names = {
        *(path for schema in (SPACE, CONFIG) for path, _, _ in reference.flat(schema)),
        *(key for room in ROOMS for _, section in room.formats.values() for key in section.known()),
        *map(str.upper, Settings.model_fields),
    }
    assert set(re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)) == names


@cases("file", SPACES)
def test_example_spaces_match_their_schema(file):
    schema = json.loads((ROOT / "docs/schemas/space.schema.json").read_text())
    assert fits(plain(read(file.read_text(), file.name)), schema)


def test_deployed_configuration_matches_its_schema():
    schema = json.loads((ROOT / "docs/schemas/config.schema.json").read_text())
    text = (ROOT / "deploy/base/config/config.yaml").read_text()
    assert fits(plain(read(text, "config.yaml")), schema)


@cases(
    ("schema", "text"),
    [
        (SPACE, "{}"),
        (SPACE, "{command: x, objective: {metric: a, goal: up}, parameters: {a: [1]}}"),
        (SPACE, "{command: x, objective: {metric: a b, goal: minimize}, parameters: {a: [1]}}"),
        (SPACE, "{command: x, objective: {metric: a, goal: minimize}, parameters: {a: []}}"),
        (SPACE, "{command: x, objective: {metric: a, goal: minimize}, parameters: {a: {min: 1}}}"),
        (CONFIG, "{repositories: {}}"),
        (CONFIG, "{repositories: {a: {url: 'git@x'}}}"),
        (CONFIG, "{repositories: {a: {url: https://x.org/a}}, limits: {hours: 2}}"),
        (CONFIG, "{repositories: {a: {url: https://x.org/a}}, warnings: {idle_minutes: 121}}"),
        (CONFIG, "{repositories: {a: {url: https://x.org/a}}, digests: [{hour: 24}]}"),
    ],
)
def test_invalid_configuration_does_not_match_the_schema(schema, text):
    assert not fits(value_of(text), schema)


def test_each_key_has_a_meaning_and_an_example_of_its_type():
    for path, key, _ in (*reference.flat(SPACE), *reference.flat(CONFIG)):
        assert key["description"].endswith("."), path
        assert "x-example" in key or "properties" in key, path
        assert "x-example" not in key or fits(value_of(key["x-example"]), key), path


@cases("name", [name for name, key in CONFIG["properties"].items() if "x-example" in key])
def test_configuration_accepts_every_example(name):
    needed = {"repositories": "{a: {url: https://x.org/a}}", "teams": "{vision: {}}"}
    keys = needed | {name: CONFIG["properties"][name]["x-example"]}
    parse_config("".join(f"{key}: {value}\n" for key, value in keys.items()), "c.yaml")


@cases("name", [name for name, key in SPACE["properties"].items() if "x-example" in key])
def test_space_accepts_every_example(name):
    examples = {key: each.get("x-example") for key, each in SPACE["properties"].items()}
    used = {each: examples[each] for each in (*SPACE["required"], name)}
    used |= {"metrics": "stdout"} if name == "early_stopping" else {}
    text = "".join(f"{key}: {example}\n" for key, example in used.items())
    assert parse_space(text, "s.yaml", SweepRequest(branch="main", space="s"), Limits())
