"""Read what a service consists of from a YAML snippet. Pure."""

import re
import shlex
from dataclasses import dataclass, field

from bot.config.allowed import PLAIN_PATH, VARIABLE
from bot.config.environment_keys import NAME
from bot.config.keys import OBJECT_NAME, SCALAR, STRING, Key, Keys, integer, string
from bot.config.services import ServiceConfig
from bot.config.trial_pods import QUANTITY_TYPE
from bot.config.yaml_reader import Node, read
from bot.core.errors import UserError
from bot.registry.images import ImageName
from bot.text.wording import did_you_mean, listed, shortened
from k8s.katib.trial_pod import VISIBLE_GPUS
from k8s.quantities import QUANTITY, amount

MAX_SNIPPET = 3_000  # characters, as in a text field of Slack
MAX_PORT = 65_535
MAX_COUNT = 1_000  # replicas, and GPUs: far above every limit, so that sums stay small
SYSTEM = ("dev", "proc", "sys")  # mounts there keep a container from starting
CONTROL = re.compile(r"[^\t\n\x20-\U0010ffff]|[\x7f-\x9f]")
DEFAULT_CPU, DEFAULT_MEMORY = "1", "2Gi"
SNIPPET_KEYS: Keys = {
    "name": Key(
        meaning="Name, different from those of all services and environments.",
        type=string("name", NAME.pattern),
        example="llm",
        required=True,
    ),
    "image": Key(
        meaning="Image, with a tag or a digest.", type=STRING, example="ghcr.io/lab/llm:3", required=True
    ),
    "port": Key(
        meaning="TCP port on which the container listens.",
        type=integer(1, MAX_PORT),
        example="8000",
        required=True,
    ),
    "replicas": Key(meaning="Number of pods.", type=integer(1), default="1", example="2"),
    "gpus": Key(meaning="GPUs of each replica.", type=integer(0), default="0", example="1"),
    "cpu": Key(
        meaning="Requested CPU of each replica.", type=QUANTITY_TYPE, default=DEFAULT_CPU, example="2"
    ),
    "memory": Key(
        meaning="Requested memory of each replica, which is also the limit.",
        type=QUANTITY_TYPE,
        default=DEFAULT_MEMORY,
        example="8Gi",
    ),
    "command": Key(
        meaning="Command, as a list or as one line, which no shell expands.",
        type={"title": "list or text", "type": ["array", "string"]},
        default="the image's",
        example="[serve, --port, '8000']",
    ),
    "volumes": Key(
        meaning="Mount path of each PersistentVolumeClaim, read-only.",
        type={"type": "object"},
        default="none",
        example="{models: /models}",
    ),
    "env": Key(
        meaning="Environment variables; not for credentials.",
        type={"type": "object", "additionalProperties": SCALAR},
        default="none",
        example="{LOG_LEVEL: info}",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Service:
    """What runs; sizes are those of each replica."""

    image: str
    port: int
    replicas: int = 1
    gpus: int = 0
    cpu: str = DEFAULT_CPU
    memory: str = DEFAULT_MEMORY
    command: tuple[str, ...] = ()
    volumes: dict[str, str] = field(default_factory=dict)  # claim -> mount path
    env: dict[str, str] = field(default_factory=dict)


def read_service(text: str, file: str = "YAML") -> tuple[str, Service]:
    """Return the name and the service. Raises UserError with all mistakes, each with its line."""
    if len(text) > MAX_SNIPPET:
        raise UserError(f"The YAML is too long ({len(text):,} characters; the limit is {MAX_SNIPPET:,}).")
    root = read(text, file)
    keys = root.mapping(SNIPPET_KEYS)
    name = _name(keys.get("name"))
    service = Service(
        image=_image(keys.get("image")),
        port=_whole(keys.get("port"), 1, MAX_PORT, default=1),
        replicas=_whole(keys.get("replicas"), 1, MAX_COUNT, default=1),
        gpus=_whole(keys.get("gpus"), 0, MAX_COUNT, default=0),
        cpu=_quantity(keys.get("cpu"), DEFAULT_CPU),
        memory=_quantity(keys.get("memory"), DEFAULT_MEMORY),
        command=_command(keys.get("command")),
        volumes=_volumes(keys.get("volumes")),
        env=_variables(keys.get("env")),
    )
    root.check()
    return name, service


def check_allowed(service: Service, config: ServiceConfig) -> None:
    """Raises UserError, for everyone, unless its image and its volumes are allowed."""
    if not config.allows(service.image):
        allowed = listed([f'"{shortened(each)}"' for each in config.images], "or")
        raise UserError(f'image must be, or start with, {allowed}; got "{shortened(service.image)}".')
    for claim in service.volumes:
        if claim not in config.volumes:
            hint = did_you_mean(claim, config.volumes) if config.volumes else " None is configured."
            raise UserError(f'volumes: must be configured volumes; got "{shortened(claim)}".{hint}')


def _name(node: Node | None) -> str:
    name = node.text() if node else ""
    if node and name and not NAME.fullmatch(name):
        rule = "at most 30 lowercase letters, digits, and dashes, and start with a letter"
        node.error(f'must have {rule}; got "{shortened(name)}"')
    return name


def _image(node: Node | None) -> str:
    image = node.text() if node else ""
    if node is None or not image:
        return image
    try:
        ImageName.parse(image)
    except ValueError as error:
        node.error(f"must be an image ({error})")
    if ":" not in image.rpartition("/")[2]:
        node.error("must have a tag or a digest: without one, each start pulls the image again")
    return image


def _whole(node: Node | None, least: int, most: int, *, default: int) -> int:
    if node is None:
        return default
    known = len(node.errors)
    number = node.whole()
    if len(node.errors) == known and not least <= number <= most:
        node.error(f"must be from {least} to {most:,}; got {shortened(node.raw)}")
    return number


def _quantity(node: Node | None, default: str) -> str:
    if node is None:
        return default
    if not QUANTITY.fullmatch(node.raw) or not amount(node.raw):
        node.error(f"must be a Kubernetes quantity such as {default}; got {node.described}")
    return node.raw


def _command(node: Node | None) -> tuple[str, ...]:
    if node is None or isinstance(node.value, list):
        return tuple(_value(each) for each in (node.items() if node else ()))
    try:
        return tuple(shlex.split(_value(node)))
    except ValueError as error:
        node.error(f"must be a list or a line with closed quotes ({error})")
        return ()


def _volumes(node: Node | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for claim, each in (node.mapping() if node else {}).items():
        path = each.text()
        parts = path.split("/")
        if not OBJECT_NAME.fullmatch(claim):
            each.error(f'must be named as a PersistentVolumeClaim; got "{shortened(claim)}"')
        if path and (not PLAIN_PATH.fullmatch(path) or {".", ".."} & {*parts} or parts[1] in SYSTEM):
            rule = "an absolute path such as /models, and not in /dev, /proc, or /sys"
            each.error(f'must be {rule}; got "{shortened(path)}"')
        if path in found.values():
            each.error(f'mount path is used twice: "{shortened(path)}"')
        found[claim] = path
    return found


def _variables(node: Node | None) -> dict[str, str]:
    found = {}
    for name, each in (node.mapping() if node else {}).items():
        if not VARIABLE.fullmatch(name):
            each.error(f'name must have only letters, digits, and underscores; got "{shortened(name)}"')
        if name == VISIBLE_GPUS:
            each.error("can't be set: Kubernetes sets it to the GPUs that the service requests")
        found[name] = _value(each)
    return found


def _value(node: Node) -> str:
    """Return a scalar as it is written, such as `8000` and `1e-4`."""
    if isinstance(node.value, dict | list):
        node.error(f"must be text or a number; got {node.described}")
        return ""
    if CONTROL.search(node.raw):
        node.error("must not have control characters")
    return node.raw
