"""Research environments and services: `environments:` of the configuration file, with images, sizes, homes,
URL, limits, and idle hours, and what a name must be. Pure.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, WithJsonSchema

from bot.core.errors import UserError
from bot.platform.config.rules import Count, Key, Matching, Name, Problem, Reads, Several
from bot.platform.config.section import Named, Section
from bot.platform.config.value_types import (
    STRING,
    Claim,
    Flag,
    Namespace,
    Number,
    Quantity,
    Text,
    Texts,
    Whole,
    image_with_tag,
    object_name,
    string,
)
from bot.platform.config.yaml_reader import Node
from bot.platform.registry.images import ImageName
from bot.text.wording import listed, shortened
from k8s.quantities import amount

NAME = re.compile(r"[a-z]([a-z0-9-]{0,28}[a-z0-9])?")  # of an environment, a home, an image, and a size
NAME_RULE = "have at most 30 lowercase letters, digits, and dashes, and start with a letter"
STORAGE = re.compile(r"([1-9][0-9]{0,5})(Mi|Gi|Ti)")  # the size of a home
JUPYTER, CODE_SERVER = "jupyter", "code-server"
URL = re.compile(r"https?://[A-Za-z0-9.{}-]+(:\d{1,5})?/([A-Za-z0-9._~{}/-]*/)?")
IP_HOST = re.compile(r"https?://[0-9]+(\.[0-9]+){3}[:/]")
MAX_CHOICES = 100  # options of a Slack menu


def _image(image: str) -> str:
    try:
        ImageName.parse(image.removesuffix("/") or "none")
    except ValueError as error:
        raise ValueError(f"must be an image, or a prefix that ends in a slash ({error})") from None
    if image == "/":
        raise ValueError('must be an image, or a prefix that ends in a slash; got "/"')
    return image


@dataclass(frozen=True, kw_only=True)
class ServiceLimits(Section):
    """All but the first are of one service, in all its replicas."""

    per_person: Annotated[Whole, Key("3", least=0)] = 2
    """Maximum services of one person."""
    replicas: Annotated[Whole, Key("4", least=1)] = 2
    """Maximum replicas of one service."""
    gpus: Annotated[Whole, Key("4", least=0)] = 1
    """Maximum GPUs of one service, across all replicas. `environments.limits.gpus_per_person` and
    `gpus_per_team` count them, too."""
    cpu: Annotated[Quantity, Key("16")] = "8"
    """Maximum CPU of one service, across all replicas."""
    memory: Annotated[Quantity, Key("64Gi")] = "32Gi"
    """Maximum memory of one service, across all replicas."""


@dataclass(frozen=True, kw_only=True)
class ServiceConfig(Section):
    images: Annotated[
        Several[Annotated[Text, AfterValidator(_image), WithJsonSchema(STRING)]],
        Count(1),
        Key("[ghcr.io/lab/, vllm/vllm-openai]"),
    ]
    """Images that services can use: an image with any tag, an image with one tag or digest, or a prefix
    that ends in a slash."""
    volumes: Annotated[Several[Claim], Key("[models]")] = ()
    """PersistentVolumeClaims in the namespace of environments that services can mount, read-only."""
    ingress: Annotated[Flag, Key("true")] = False
    """Give each service an Ingress at `environments.url`. Services have no authentication."""
    limits: Annotated[ServiceLimits, Key()] = ServiceLimits()
    """Limits. They don't apply to admins."""

    def allows(self, image: str) -> bool:
        return any(_matches(image, each) for each in self.images)


def _matches(image: str, allowed: str) -> bool:
    if not image.startswith(allowed):
        return False
    tag = image.removeprefix(allowed)  # a registry's port isn't one: after it comes a slash
    return not tag or allowed.endswith("/") or (tag[0] in ":@" and "/" not in tag)


def checked_name(name: str) -> str:
    """Raises UserError for a name that an environment can't have."""
    if NAME.fullmatch(name):
        return name
    raise UserError(f'The name must {NAME_RULE}; got "{shortened(name)}".', field="name")


def _url(url: str) -> str:
    if not URL.fullmatch(url) or url.count("{name}") != 1 or {*"{}"} & {*url.replace("{name}", "")}:
        raise ValueError(f'must be a URL with one {{name}} that ends in a slash; got "{shortened(url)}"')
    if IP_HOST.match(url):
        raise ValueError("must have a host name: an Ingress rejects IP addresses")
    return url


ChoiceName = Annotated[str, Name(NAME, NAME_RULE)]
Storage = Annotated[Text, Matching(STORAGE, "a size such as 20Gi", "size")]
Url = Annotated[Text, AfterValidator(_url), WithJsonSchema(string("URL", URL.pattern))]


@dataclass(frozen=True, kw_only=True)
class EnvironmentImage(Section):
    name: ChoiceName
    image: Annotated[
        Text, AfterValidator(image_with_tag), Key("quay.io/jupyter/pytorch-notebook:cuda12-2026-11-02")
    ]
    """Image reference, with a tag or a digest."""
    server: Annotated[Literal["jupyter", "code-server"], Reads(Node.text), Key(CODE_SERVER)] = "jupyter"
    """What listens in it: `jupyter` (port 8888) or `code-server` (port 8080)."""
    command: Annotated[Several[Text], Key("[jupyter, lab]", "the image's")] = ()
    """Command of an image that isn't built like Jupyter Docker Stacks."""


@dataclass(frozen=True, kw_only=True)
class EnvironmentSize(Section):
    name: ChoiceName
    cpu: Annotated[Quantity, Key("4")]
    """Requested CPU."""
    memory: Annotated[Quantity, Key("32Gi")]
    """Requested memory, which is also the limit; a quarter of it can be `/dev/shm`."""


@dataclass(frozen=True, kw_only=True)
class EnvironmentLimits(Section):
    """None: no limit."""

    per_person: Annotated[Whole, Key("3", least=0)] = 2
    """Maximum environments of one person."""
    per_team: Annotated[Whole | None, Key("20", "no limit", least=0)] = None
    """Maximum environments of one team."""
    gpus: Annotated[Whole, Key("2", least=0)] = 1
    """Maximum GPUs of one environment."""
    gpus_per_person: Annotated[Whole, Key("2", least=0)] = 1
    """Maximum GPUs of one person's running environments."""
    gpus_per_team: Annotated[Whole | None, Key("8", "no limit", least=0)] = None
    """Maximum GPUs of one team's running environments."""


@dataclass(frozen=True, kw_only=True)
class EnvironmentIdle(Section):
    hours: Annotated[Number, Key("4", least=0, most=24)] = 2
    """Hours without use before a warning. 0: never."""
    stop: Annotated[Flag, Key("true")] = False
    """Stop an environment that stays idle after its warning."""
    notice_minutes: Annotated[Whole, Key("60", least=5, most=1440)] = 30
    """Minutes from the warning to the stop."""


DEFAULT_SIZE = EnvironmentSize(name="m", cpu="2", memory="8Gi")


@dataclass(frozen=True, kw_only=True)
class EnvironmentConfig(Section):
    namespace: Annotated[Namespace, Key("environments")]
    """Namespace of environments only: not `K8S_NAMESPACE`, because pods can mount its Secrets."""
    images: Annotated[
        Named[EnvironmentImage],
        Count(1, MAX_CHOICES),
        Key("{jupyter: {image: quay.io/jupyter/pytorch-notebook:cuda12-2026-11-02}}"),
    ]
    """Images by name. The first is the default."""
    sizes: Annotated[
        Named[EnvironmentSize],
        Count(1, MAX_CHOICES),
        Key("{m: {cpu: 4, memory: 16Gi}, l: {cpu: 8, memory: 64Gi}}", "{m: {cpu: 2, memory: 8Gi}}"),
    ] = (DEFAULT_SIZE,)
    """Sizes by name. The first is the default."""
    home: Annotated[Storage, Key("50Gi")] = "20Gi"
    """Size of a new home."""
    max_home: Annotated[Storage, Key("1Ti")] = "100Gi"
    """Maximum size of a home."""
    storage_class: Annotated[Text, object_name("a StorageClass"), Key("cephfs", "the cluster's")] = ""
    """StorageClass of homes."""
    shared_homes: Annotated[Flag, Key("true")] = False
    """Create homes as ReadWriteMany, so that no node has to release them first."""
    url: Annotated[Url, Key('"https://env.example/{name}/"')] = ""
    """URL of an environment, with `{name}` in the host or the path, for an Ingress. Without it, people
    use `kubectl port-forward`."""
    ingress_class: Annotated[Text, object_name("an IngressClass"), Key("nginx", "the cluster's")] = ""
    """IngressClass of environments."""
    ingress_annotations: Annotated[Texts, Key('{nginx.ingress.kubernetes.io/proxy-read-timeout: "3600"}')] = (
        field(default_factory=dict)
    )
    """Annotations of the Ingress, such as timeouts for WebSockets."""
    limits: Annotated[EnvironmentLimits, Key()] = EnvironmentLimits()
    """Limits. They don't apply to admins."""
    idle: Annotated[EnvironmentIdle, Key()] = EnvironmentIdle()
    """What happens to unused environments."""
    services: Annotated[ServiceConfig | None, Key("{images: [ghcr.io/lab/]}")] = None
    """Services that people can run with `/env service`. Without it, they can't."""

    def image(self, name: str) -> EnvironmentImage | None:
        return next((each for each in self.images if each.name == name), None)

    def size(self, name: str) -> EnvironmentSize | None:
        return next((each for each in self.sizes if each.name == name), None)

    def problems(self, _: Any) -> Iterator[Problem]:
        rooted = [each.name for each in self.images if each.server == CODE_SERVER]
        if rooted and self.url and urlsplit(self.url).path != "/":
            rule = f"{listed(rooted)} ({CODE_SERVER}) needs /"
            yield "url", f"must have {{name}} in the host, and no path: {rule}"
        # On one host, pages of a service could act with a visitor's login of an environment.
        if self.services and self.services.ingress and "{name}" not in urlsplit(self.url).netloc:
            yield "services", "ingress: true needs {name} in the host of environments.url"
        if amount(self.home) > amount(self.max_home):
            yield "", f"home ({self.home}) must be at most max_home ({self.max_home})"
