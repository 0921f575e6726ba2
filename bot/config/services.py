"""What services people can run: `environments.services` of the configuration file. Pure."""

from dataclasses import dataclass

from bot.config.keys import OBJECT_NAME
from bot.config.service_keys import LIMIT_KEYS, SERVICE_KEYS
from bot.config.trial_pods import read_quantity
from bot.config.yaml_reader import Node, entries, matching
from bot.registry.images import ImageName


@dataclass(frozen=True, kw_only=True)
class ServiceLimits:
    """All but the first are of one service, in all its replicas."""

    per_person: int = 2
    replicas: int = 2
    gpus: int = 1
    cpu: str = "8"
    memory: str = "32Gi"


@dataclass(frozen=True, kw_only=True)
class ServiceConfig:
    images: tuple[str, ...]  # with any tag, with one tag or digest, or prefixes that end in a slash
    volumes: tuple[str, ...] = ()  # claims
    ingress: bool = False
    limits: ServiceLimits = ServiceLimits()

    def allows(self, image: str) -> bool:
        return any(_matches(image, each) for each in self.images)


def _matches(image: str, allowed: str) -> bool:
    if not image.startswith(allowed):
        return False
    tag = image.removeprefix(allowed)  # a registry's port isn't one: after it comes a slash
    return not tag or allowed.endswith("/") or (tag[0] in ":@" and "/" not in tag)


def read_services(node: Node | None) -> ServiceConfig | None:
    if node is None:
        return None
    keys = node.mapping(SERVICE_KEYS)
    images = [_image(each) for each in entries(keys.get("images"))]
    if "images" in keys and not images:
        keys["images"].error("must have at least one entry")
    return ServiceConfig(
        images=tuple(images),
        volumes=tuple(_claim(each) for each in entries(keys.get("volumes"))),
        ingress=keys["ingress"].flag() if "ingress" in keys else False,
        limits=_limits(keys.get("limits")),
    )


def _image(node: Node) -> str:
    """Return an entry, which never is empty: it would allow every image."""
    image = node.text()
    try:
        ImageName.parse(image.removesuffix("/") or "none")
    except ValueError as error:
        node.error(f"must be an image, or a prefix that ends in a slash ({error})")
    if image == "/":
        node.error('must be an image, or a prefix that ends in a slash; got "/"')
    return image or "none"


def _claim(node: Node) -> str:
    return matching(node, OBJECT_NAME, "the name of a PersistentVolumeClaim")


def _limits(node: Node | None) -> ServiceLimits:
    keys, default = node.mapping(LIMIT_KEYS) if node else {}, ServiceLimits()
    least = {"per_person": 0, "replicas": 1, "gpus": 0}
    whole = {key: keys[key].whole() if key in keys else getattr(default, key) for key in least}
    for key, number in whole.items():
        if number < least[key]:
            keys[key].error(f"must be at least {least[key]}; got {number}")
    cpu, memory = read_quantity(keys.get("cpu"), "8"), read_quantity(keys.get("memory"), "32Gi")
    return ServiceLimits(**whole, cpu=cpu or default.cpu, memory=memory or default.memory)
