"""Read what a service consists of from a YAML snippet, check its limits, and describe it. Pure."""

import re
import shlex
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from bot.core.errors import UserError
from bot.platform.config.environments import NAME, NAME_RULE, ServiceConfig, ServiceLimits
from bot.platform.config.rules import Key, Reads
from bot.platform.config.section import Section, parsed
from bot.platform.config.value_types import (
    LABELS,
    OBJECT_NAME,
    PLAIN_PATH,
    QUANTITY_TYPE,
    STRING,
    VARIABLE,
    Quantity,
    Text,
    Whole,
    image_with_tag,
    string,
)
from bot.platform.config.yaml_reader import Node, read
from bot.platform.slack.mrkdwn import code
from bot.text.wording import counted, did_you_mean, listed, shortened
from k8s.katib.trial_pod import VISIBLE_GPUS
from k8s.quantities import amount

MAX_SNIPPET = 3_000  # characters, as in a text field of Slack
MAX_PORT = 65_535
MAX_COUNT = 1_000  # replicas, and GPUs: far above every limit, so that sums stay small
SYSTEM = ("dev", "proc", "sys")  # mounts there keep a container from starting
CONTROL = re.compile(r"[^\t\n\x20-\U0010ffff]|[\x7f-\x9f]")
FENCE = re.compile(r"```(?:ya?ml[ \t]*\n)?(.*)```", re.DOTALL)
DEFAULT_CPU, DEFAULT_MEMORY = "1", "2Gi"


def _value(node: Node) -> str:
    """Return a scalar as it is written, such as `8000` and `1e-4`."""
    if isinstance(node.value, dict | list):
        node.error(f"must be text or a number; got {node.described}")
        return ""
    if CONTROL.search(node.raw):
        node.error("must not have control characters")
    return node.raw


def _command(node: Node) -> tuple[str, ...]:
    if isinstance(node.value, list):
        return tuple(map(_value, node.value))
    try:
        return tuple(shlex.split(_value(node)))
    except ValueError as error:
        node.error(f"must be a list or a line with closed quotes ({error})")
        return ()


def _volumes(node: Node) -> dict[str, str]:
    found: dict[str, str] = {}
    for claim, each in node.mapping().items():
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


def _variables(node: Node) -> dict[str, str]:
    found = {}
    for name, each in node.mapping().items():
        if not VARIABLE.fullmatch(name):
            each.error(f'name must have only letters, digits, and underscores; got "{shortened(name)}"')
        if name == VISIBLE_GPUS:
            each.error("can't be set: Kubernetes sets it to the GPUs that the service requests")
        found[name] = _value(each)
    return found


def _name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError(f'must {NAME_RULE}; got "{shortened(name)}"')
    return name


def _positive(quantity: str) -> str:
    if not amount(quantity):
        raise ValueError(f'must be above 0; got "{quantity}"')
    return quantity


Size = Annotated[Quantity, AfterValidator(_positive), WithJsonSchema(QUANTITY_TYPE)]
ServiceName = Annotated[Text, AfterValidator(_name), WithJsonSchema(string("name", NAME.pattern))]


@dataclass(frozen=True, kw_only=True)
class Service(Section):
    """What runs; sizes are those of each replica."""

    image: Annotated[Text, AfterValidator(image_with_tag), WithJsonSchema(STRING), Key("ghcr.io/lab/llm:3")]
    """Image, with a tag or a digest."""
    port: Annotated[Whole, Key("8000", least=1, most=MAX_PORT)]
    """TCP port on which the container listens."""
    replicas: Annotated[Whole, Key("2", least=1, most=MAX_COUNT)] = 1
    """Number of pods."""
    gpus: Annotated[Whole, Key("1", least=0, most=MAX_COUNT)] = 0
    """GPUs of each replica."""
    cpu: Annotated[Size, Key("2")] = DEFAULT_CPU
    """Requested CPU of each replica."""
    memory: Annotated[Size, Key("8Gi")] = DEFAULT_MEMORY
    """Requested memory of each replica, which is also the limit."""
    command: Annotated[
        tuple[str, ...],
        Reads(_command),
        WithJsonSchema({"title": "list or text", "type": ["array", "string"]}),
        Key("[serve, --port, '8000']", "the image's"),
    ] = ()
    """Command, as a list or as one line, which no shell expands."""
    volumes: Annotated[
        dict[str, str], Reads(_volumes), WithJsonSchema({"type": "object"}), Key("{models: /models}")
    ] = field(default_factory=dict)
    """Mount path of each PersistentVolumeClaim, read-only."""
    env: Annotated[dict[str, str], Reads(_variables), WithJsonSchema(LABELS), Key("{LOG_LEVEL: info}")] = (
        field(default_factory=dict)
    )
    """Environment variables; not for credentials."""


@dataclass(frozen=True, kw_only=True)
class _Named(Section):
    name: Annotated[ServiceName, Key("llm")]
    """Name, different from those of all services and environments."""


@dataclass(frozen=True, kw_only=True)
class Snippet(Service, _Named):
    """A service with its name, which comes first."""


def read_service(text: str, file: str = "YAML") -> tuple[str, Service]:
    """Return the name and the service. Raises UserError with all mistakes, each with its line."""
    if len(text) > MAX_SNIPPET:
        raise UserError(f"The YAML is too long ({len(text):,} characters; the limit is {MAX_SNIPPET:,}).")
    found = vars(parsed(Snippet, read(text, file)))
    return found["name"], Service(**{key: each for key, each in found.items() if key != "name"})


def allowed_service(text: str, config: ServiceConfig | None, file: str = "YAML") -> tuple[str, Service]:
    """Return what `read_service` does, of a snippet that can be fenced. Raises UserError, also if the
    service isn't allowed.
    """
    fenced = FENCE.fullmatch(text.strip())
    name, service = read_service(fenced[1] if fenced else text, file)
    if config:
        check_allowed(service, config)
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


def sizes(service: Service) -> str:
    """Return the image and what each replica gets."""
    gpus = counted(service.gpus, "GPU") if service.gpus else "no GPU"
    each = " each" if service.replicas > 1 else ""
    what = f"{gpus}, {service.cpu} CPU, and {service.memory} of memory{each}"
    return f"{code(service.image)}, {counted(service.replicas, 'replica')} with {what}"


def partly(service: Service, ready: int, step: str) -> str:
    """Return the state of a service of which some replicas aren't ready."""
    return f"Running, {ready} of {counted(service.replicas, 'replica')} ready: {step}"


def limit_denial(service: Service, own: Collection[str], limits: ServiceLimits) -> str:
    """Return why the service exceeds a limit, as a sentence with its fix; "" if it is allowed.

    Args:
        own: the names of the owner's other services.
    """
    if len(own) >= limits.per_person:
        names = [f"`{each}`" for each in own]
        fix = f"*Fix:* Delete one of yours ({listed(names)})." if names else "Ask an admin to raise it."
        return f"The limit is {counted(limits.per_person, 'service')} per person. {fix}"
    return _replica_denial(service, limits) or _size_denial(service, limits)


def _replica_denial(service: Service, limits: ServiceLimits) -> str:
    if service.replicas <= limits.replicas:
        return ""
    most = counted(limits.replicas, "replica")
    return f"The limit is {most} per service; got {service.replicas:,}. *Fix:* Request fewer."


def _size_denial(service: Service, limits: ServiceLimits) -> str:
    requested = {
        counted(limits.gpus, "GPU"): (str(service.gpus), str(limits.gpus)),
        f"{limits.cpu} CPU": (service.cpu, limits.cpu),
        f"{limits.memory} of memory": (service.memory, limits.memory),
    }
    for limit, (each, most) in requested.items():
        if amount(each) * service.replicas > amount(most):
            total = f"{counted(service.replicas, 'replica')} with {each} each"
            return f"The limit is {limit} per service, across all replicas; got {total}. *Fix:* Request less."
    return ""
