"""Research environments: `environments:` of the configuration file. Pure."""

import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from bot.config.environment_keys import (
    BYTES,
    CODE_SERVER,
    ENVIRONMENT_KEYS,
    IDLE_KEYS,
    IMAGE_KEYS,
    JUPYTER,
    LIMIT_KEYS,
    MAX_CHOICES,
    NAME,
    SIZE_KEYS,
    STORAGE,
    URL,
)
from bot.config.keys import NAMESPACE_NAME, OBJECT_NAME
from bot.config.services import ServiceConfig, read_services
from bot.config.yaml_reader import Node, entries
from bot.registry.images import ImageName
from bot.text.wording import listed, shortened
from k8s.quantities import QUANTITY


@dataclass(frozen=True, kw_only=True)
class EnvironmentImage:
    name: str
    image: str
    server: str = JUPYTER
    command: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EnvironmentSize:
    name: str
    cpu: str
    memory: str


@dataclass(frozen=True, kw_only=True)
class EnvironmentLimits:
    """None: no limit."""

    per_person: int = 2
    per_team: int | None = None
    gpus: int = 1
    gpus_per_person: int = 1
    gpus_per_team: int | None = None


@dataclass(frozen=True, kw_only=True)
class EnvironmentIdle:
    hours: float = 2.0  # 0: never warn
    stop: bool = False
    notice_minutes: int = 30


IP_HOST = re.compile(r"https?://[0-9]+(\.[0-9]+){3}[:/]")
DEFAULT_SIZE = EnvironmentSize(name="m", cpu="2", memory="8Gi")


@dataclass(frozen=True, kw_only=True)
class EnvironmentConfig:
    namespace: str
    images: tuple[EnvironmentImage, ...]  # the first is the default
    sizes: tuple[EnvironmentSize, ...] = (DEFAULT_SIZE,)  # as above
    home: str = "20Gi"
    max_home: str = "100Gi"
    storage_class: str = ""
    shared_homes: bool = False
    url: str = ""  # with {name} in the host or the path; "": no Ingress
    ingress_class: str = ""
    ingress_annotations: dict[str, str] = field(default_factory=dict)
    limits: EnvironmentLimits = EnvironmentLimits()
    idle: EnvironmentIdle = EnvironmentIdle()
    services: ServiceConfig | None = None  # None: people can't run any

    def image(self, name: str) -> EnvironmentImage | None:
        return next((each for each in self.images if each.name == name), None)

    def size(self, name: str) -> EnvironmentSize | None:
        return next((each for each in self.sizes if each.name == name), None)


def storage_bytes(size: str) -> int:
    """Return the bytes of a size that STORAGE matches."""
    found = STORAGE.fullmatch(size)
    return int(found[1]) * BYTES[found[2]] if found else 0


def read_environments(node: Node | None) -> EnvironmentConfig | None:
    if node is None:
        return None
    keys = node.mapping(ENVIRONMENT_KEYS)
    images = tuple(_image(name, each) for name, each in _choices(keys.get("images")))
    sizes = tuple(_size(name, each) for name, each in _choices(keys.get("sizes")))
    config = EnvironmentConfig(
        namespace=_text(keys.get("namespace"), NAMESPACE_NAME, "a namespace name"),
        images=images,
        sizes=sizes or (DEFAULT_SIZE,),
        home=_text(keys.get("home"), STORAGE, "a size such as 20Gi", "20Gi"),
        max_home=_text(keys.get("max_home"), STORAGE, "a size such as 100Gi", "100Gi"),
        storage_class=_text(keys.get("storage_class"), OBJECT_NAME, "the name of a StorageClass"),
        shared_homes=keys["shared_homes"].flag() if "shared_homes" in keys else False,
        url=_url(keys.get("url"), images),
        ingress_class=_text(keys.get("ingress_class"), OBJECT_NAME, "the name of an IngressClass"),
        ingress_annotations=_annotations(keys.get("ingress_annotations")),
        limits=EnvironmentLimits(**_limits(keys.get("limits"))),
        idle=_idle(keys.get("idle")),
        services=read_services(keys.get("services")),
    )
    # On one host, pages of a service could act with a visitor's login of an environment.
    if config.services and config.services.ingress and "{name}" not in urlsplit(config.url).netloc:
        keys["services"].error("ingress: true needs {name} in the host of environments.url")
    if storage_bytes(config.home) > storage_bytes(config.max_home):
        node.error(f"home ({config.home}) must be at most max_home ({config.max_home})")
    return config


def _choices(node: Node | None) -> list[tuple[str, Node]]:
    found = list(node.mapping().items()) if node else []
    if node and not 0 < len(found) <= MAX_CHOICES:
        node.error(f"must have from 1 to {MAX_CHOICES} entries; got {len(found)}")
    for name, each in found:
        if not NAME.fullmatch(name):
            rule = "at most 30 lowercase letters, digits, and dashes, and start with a letter"
            each.error(f'name must have {rule}; got "{shortened(name)}"')
    return found


def _image(name: str, node: Node) -> EnvironmentImage:
    keys = node.mapping(IMAGE_KEYS)
    image = keys["image"].text() if "image" in keys else ""
    if image:
        _check_image(keys["image"], image)
    server = keys["server"].text() if "server" in keys else JUPYTER
    if server not in {JUPYTER, CODE_SERVER}:
        keys["server"].error(f'must be {JUPYTER} or {CODE_SERVER}; got "{shortened(server)}"')
    command = tuple(each.text() for each in entries(keys.get("command")))
    return EnvironmentImage(name=name, image=image, server=server, command=command)


def _check_image(node: Node, image: str) -> None:
    try:
        ImageName.parse(image)
    except ValueError as error:
        node.error(f"must be an image reference ({error})")
    if ":" not in image.rpartition("/")[2]:
        node.error("must have a tag or a digest: without one, each start pulls the image again")


def _size(name: str, node: Node) -> EnvironmentSize:
    keys = node.mapping(SIZE_KEYS)
    for each in keys.values():
        if not QUANTITY.fullmatch(each.raw):
            each.error(f"must be a Kubernetes quantity such as 4 or 32Gi; got {each.described}")
    cpu, memory = (keys[key].raw if key in keys else "1" for key in ("cpu", "memory"))
    return EnvironmentSize(name=name, cpu=cpu, memory=memory)


def _text(node: Node | None, pattern: re.Pattern[str], what: str, default: str = "") -> str:
    text = node.text() if node else default
    if node and text and not pattern.fullmatch(text):
        node.error(f'must be {what}; got "{shortened(text)}"')
        return default
    return text


def _url(node: Node | None, images: tuple[EnvironmentImage, ...]) -> str:
    url = node.text() if node else ""
    if node is None or not url:
        return ""
    if not URL.fullmatch(url) or url.count("{name}") != 1 or re.sub(r"\{name\}", "", url).count("{"):
        node.error(f'must be a URL with one {{name}} that ends in a slash; got "{shortened(url)}"')
        return ""
    if IP_HOST.match(url):
        node.error("must have a host name: an Ingress rejects IP addresses")
    rooted = [each.name for each in images if each.server == CODE_SERVER]
    if rooted and urlsplit(url).path != "/":
        node.error(f"must have {{name}} in the host, and no path: {listed(rooted)} ({CODE_SERVER}) needs /")
    return url


def _annotations(node: Node | None) -> dict[str, str]:
    return {key: value.text() for key, value in node.mapping().items()} if node else {}


def _limits(node: Node | None) -> dict[str, int]:
    found = {}
    for key, each in (node.mapping(LIMIT_KEYS) if node else {}).items():
        found[key] = each.whole()
        if found[key] < 0:
            each.error(f"must be at least 0; got {found[key]}")
    return {key: value for key, value in found.items() if key in LIMIT_KEYS}


def _idle(node: Node | None) -> EnvironmentIdle:
    keys = node.mapping(IDLE_KEYS) if node else {}
    default = EnvironmentIdle()
    hours = float(keys["hours"].number()) if "hours" in keys else default.hours
    if not 0 <= hours <= 24:
        keys["hours"].error(f"must be from 0 (never) to 24; got {hours:g}")
    notice = keys["notice_minutes"].whole() if "notice_minutes" in keys else default.notice_minutes
    if not 5 <= notice <= 1440:
        keys["notice_minutes"].error(f"must be from 5 to 1440; got {notice}")
    stop = keys["stop"].flag() if "stop" in keys else default.stop
    return EnvironmentIdle(hours=hours, stop=stop, notice_minutes=notice)
