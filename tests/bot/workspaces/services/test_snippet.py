"""YAML snippets of services."""

from pathlib import Path

import pytest

from bot.core.errors import UserError
from bot.workspaces.services.snippet import Service, read_service
from tests.cases import cases

ROOT = Path(__file__).parents[4]
LEAST = "name: llm\nimage: ghcr.io/lab/llm:3\nport: 8000\n"
LLM = Service(image="ghcr.io/lab/llm:3", port=8000)


def test_name_image_and_port_are_enough():
    assert read_service(LEAST) == ("llm", LLM)


def test_example_of_the_documentation_is_valid():
    blocks = (ROOT / "docs" / "environments.md").read_text().split("```yaml\n")
    [example] = [each.partition("```")[0] for each in blocks if each.startswith("name: ")]
    assert read_service(example)[0] == "llm"


def test_all_keys_are_read():
    text = (
        "replicas: 2\ngpus: 1\ncpu: 500m\nmemory: 4Gi\ncommand: serve --model '/models/a b' --lr 1e-4\n"
        "volumes: {models: /models}\nenv: {LEVEL: info, PORT: 8000, DEBUG: true}\n"
    )
    _, service = read_service(LEAST + text)
    assert service == Service(
        image="ghcr.io/lab/llm:3",
        port=8000,
        replicas=2,
        gpus=1,
        cpu="500m",
        memory="4Gi",
        command=("serve", "--model", "/models/a b", "--lr", "1e-4"),
        volumes={"models": "/models"},
        env={"LEVEL": "info", "PORT": "8000", "DEBUG": "true"},
    )
    assert read_service(LEAST + "command: [serve, --port, 8000]\n")[1].command == ("serve", "--port", "8000")


@cases(
    ("text", "error"),
    [
        ("name: llm\n", "YAML:1: missing key: image"),
        (LEAST + "replica: 2\n", "YAML:4: replica: unknown key. Did you mean replicas?"),
        (LEAST + "hostNetwork: true\n", "YAML:4: hostNetwork: unknown key."),
        (LEAST + "port: 9000\n", "duplicate key; first set on line 3"),
        ("name: ../x\nimage: a:1\nport: 1\n", "YAML:1: name: must have at most 30 lowercase letters"),
        ("name: llm\nimage: ghcr.io/lab/../evil:1\nport: 1\n", "YAML:2: image: must be an image"),
        ("name: llm\nimage: 'ghcr.io/lab/a:1 --x'\nport: 1\n", "YAML:2: image: must be an image"),
        ("name: llm\nimage: ghcr.io/lab/llm\nport: 1\n", "must have a tag or a digest"),
        ("name: llm\nimage: a:1\nport: 0\n", "YAML:3: port: must be from 1 to 65,535; got 0"),
        ("name: llm\nimage: a:1\nport: 70000\n", "must be from 1 to 65,535; got 70000"),
        (LEAST + "replicas: -1\n", "must be from 1 to 1,000; got -1"),
        (LEAST + "gpus: 0.5\n", "must be a whole number; got 0.5"),
        (LEAST + "gpus: " + "9" * 2000 + "\n", "can't be read as int"),
        (LEAST + "memory: lots\n", 'must be a Kubernetes quantity such as 4 or 32Gi; got "lots"'),
        (LEAST + "cpu: 0\n", 'cpu: must be above 0; got "0"'),
        (LEAST + "command: serve 'x\n", "must be a list or a line with closed quotes"),
        (LEAST + "command: [a, [b]]\n", "must be text or a number; got a list"),
        (LEAST + 'command: ["a\\0b"]\n', "character not allowed (NUL,"),
        (LEAST + 'command: ["a\\x01b"]\n', "must not have control characters"),
        (LEAST + 'env: {A: "a\\x1b[31m"}\n', "must not have control characters"),
        (LEAST + "env: {'A=B': x}\n", "name must have only letters, digits, and underscores"),
        (LEAST + "env: {NVIDIA_VISIBLE_DEVICES: all}\n", "can't be set: Kubernetes sets it to the GPUs"),
        (LEAST + "volumes: {models: /a/../etc}\n", "must be an absolute path such as /models"),
        (LEAST + "volumes: {models: /proc/1}\n", "and not in /dev, /proc, or /sys"),
        (LEAST + "volumes: {'../x': /a}\n", "must be named as a PersistentVolumeClaim"),
        (LEAST + "volumes: {a: /a, b: /a}\n", "mount path is used twice"),
        ("!!python/object/apply:os.system [id]\n", "must be a mapping"),
        (LEAST + "name2: !!python/name:os.system x\n", "a tag isn't allowed"),
        ("a: " + "[" * 50 + "\n", "nested more than 20 levels deep"),
        (LEAST + "env: {A: " + "x" * 3000 + "}\n", "The YAML is too long (3,0"),
        ("just text", "must be a mapping"),
    ],
)
def test_hostile_or_wrong_snippet_is_refused_with_its_line(text, error):
    with pytest.raises(UserError) as caught:
        read_service(text)
    assert error in str(caught.value)


def test_aliases_cannot_grow():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(UserError) as caught:
        read_service("\n".join(lines))
    assert "too many values" in str(caught.value)
