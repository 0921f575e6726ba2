"""YAML with line numbers: values, limits, and error messages."""

import pytest

from bot.core.errors import UserError
from bot.platform.config.yaml_reader import QUOTE, Node, read
from tests.cases import cases


def plain(node: Node) -> object:
    if isinstance(node.value, dict):
        return {key: plain(value) for key, value in node.value.items()}
    if isinstance(node.value, list):
        return [plain(item) for item in node.value]
    return node.value


def complaints(text: str) -> str:
    with pytest.raises(UserError) as error:
        read(text, "x.yaml").check()
    return str(error.value)


@cases(
    ("written", "value"),
    [
        ("1e-4", 0.0001),
        ("1E5", 100000.0),
        (".5e3", 500.0),
        ("-2.5e-1", -0.25),
        ("1.5", 1.5),
        ("12", 12),
        ("1_000", 1000),
        ("0x10", 16),
        ("-3", -3),
        ("true", True),
        ("~", None),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("No", "No"),
        ("2026-01-01", "2026-01-01"),
        ("e5", "e5"),
        ("5e", "5e"),
        ("'1'", "1"),
        ('"1e-4"', "1e-4"),
    ],
)
def test_read_scalar_is_the_expected_value(written: str, value: object) -> None:
    found = read(f"key: {written}", "x.yaml").value["key"].value
    assert (type(found), found) == (type(value), value)


def test_read_nodes_have_lines_and_paths_and_may_have_small_anchors() -> None:
    root = read("# a space\nparameters:\n  lr: {min: 1,\n       max: 2}\n  opt: [adam,\n    sgd]\n", "x.yaml")
    parameters = root.value["parameters"].value
    high, sgd = parameters["lr"].value["max"], parameters["opt"].value[1]
    assert (high.path, high.line) == ("parameters.lr.max", 4)
    assert (sgd.path, sgd.line) == ("parameters.opt[1]", 6)
    assert plain(read("a: &a [1, 2]\nb: *a\n", "x.yaml")) == {"a": [1, 2], "b": [1, 2]}


LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))


@cases(
    ("text", "expected"),
    [
        ("a: 1\n\tb: 2", "x.yaml:2: tabs aren't allowed; indent with spaces"),
        ("a: [1", "x.yaml:1: invalid YAML: expected ',' or ']', but got '<stream end>'"),
        ("a: 1\nb: c: d", "x.yaml:2: invalid YAML: mapping values are not allowed here"),
        ("a: *b", "x.yaml:1: invalid YAML: found undefined alias. " + QUOTE),
        ("", "x.yaml: the file is empty"),
        ("# only words\n", "x.yaml: the file is empty"),
        ("a: 1\n--- \nb: 1", "x.yaml:2: invalid YAML: but found another document"),
        ("a: 1\nb: 2\na: 3\n", "x.yaml:3: a: duplicate key; first set on line 1"),
        ("a: \x01", "x.yaml:1: character not allowed in YAML (special characters are not allowed)"),
        ("a: !!python/name:os.system x", "x.yaml:1: a tag isn't allowed. " + QUOTE),
        ("a: !!timestamp abc", "x.yaml:1: a tag isn't allowed. " + QUOTE),
        ("a: !!int abc", "x.yaml:1: a value can't be read as int"),
        ('a: !!int ""', "x.yaml:1: a value can't be read as int"),
        ("a: " + "1:" * 200 + "1.5", "x.yaml:1: a value can't be read as float"),
        ("a: " + "9" * 5000, "x.yaml:1: a value can't be read as int"),
        ("a: &a [*a]", "x.yaml:1: too many values or nesting levels (anchors included)"),
        (LAUGHS, "x.yaml:1: too many values or nesting levels (anchors included)"),
        (f"%YAML {'1' * 5000}.1\n---\na: 1", "x.yaml:1: invalid YAML: a number is too large"),
        ('a: 1\nb: "\\UFFFFFFFF"', "x.yaml:2: invalid YAML: a number is too large"),
        ('a: "\\U00110000"', "x.yaml:1: invalid YAML: a number is too large"),
        ('a: 1\nb: ["\\0"]', "x.yaml:2: character not allowed (NUL, or half of a surrogate pair)"),
        ('a: !!int "x\\ud800"', "x.yaml:1: character not allowed (NUL, or half of a surrogate pair)"),
        ('"\\udfff": 1', "x.yaml:1: character not allowed (NUL, or half of a surrogate pair)"),
        ("[" * 9000, "x.yaml:1: invalid YAML: nested more than 20 levels deep"),
        ("a: " + "x" * 70_000, "x.yaml: too long (the limit is 64,000 characters)"),
    ],
)
def test_read_rejects_invalid_or_huge_yaml_with_its_line(text: str, expected: str) -> None:
    assert complaints(text) == expected


@cases(
    ("value", "reading", "expected"),
    [
        ("'0.1'", "number", 'must be a number; got the text "0.1". Remove the quotes.'),
        ("fast", "number", 'must be a number; got "fast"'),
        ("true", "number", 'must be a number; got "true"'),
        ("[0]", "number", "must be a number; got a list"),
        (".nan", "number", "must be a finite number"),
        ("1e999", "number", "must be a finite number"),
        ("1" + "0" * 400, "number", "must be a finite number"),
        ("2.0", "whole", "must be a whole number; got 2.0"),
        ("12", "text", "must be text; got a number. Put it in quotes"),
        ("", "text", "must be text; got nothing"),
        ("x", "items", "must be a list; got text"),
        ("[x]", "mapping", "must be a mapping; got a list"),
        ("https://hooks.example.com/hunter2", "mapping", "must be a mapping; got text"),
    ],
)
def test_node_of_another_type_is_described(value: str, reading: str, expected: str) -> None:
    root = read(f"key: {value}", "x.yaml")
    getattr(root.value["key"], reading)()
    with pytest.raises(UserError) as error:
        root.check()
    assert str(error.value) == f"x.yaml:1: key: {expected}"


def test_check_raises_errors_in_file_order_up_to_their_limit() -> None:
    root = read("goal: up\nmetrik: loss\ntarget: high\n", "x.yaml")
    keys = root.mapping(["goal", "metric", "target"])
    keys["target"].number()
    root.error("missing key: metric")
    with pytest.raises(UserError) as error:
        root.check()
    assert str(error.value).splitlines() == [
        "x.yaml:1: missing key: metric",
        "x.yaml:2: metrik: unknown key. Did you mean metric?",
        'x.yaml:3: target: must be a number; got "high"',
    ]
    root = read("\n".join(f"{'k' * 120}{n}: 1" for n in range(400)), "x.yaml")
    root.mapping(["known"])
    with pytest.raises(UserError) as error:
        root.check()
    lines = str(error.value).splitlines()
    assert (len(lines), lines[-1]) == (21, "x.yaml: … and 380 more errors")
    assert max(map(len, lines)) < 170


@pytest.mark.parametrize("text", ["%YAML 1." + "1" * 5_000 + "\n---\na: 1", "a: !!int " + "1:" * 5_000 + "1"])
def test_read_rejects_numbers_with_thousands_of_digits(text: str) -> None:
    assert complaints(text)
