"""Turn a record and the configuration into the objects' specification. Pure."""

from urllib.parse import urlsplit

from bot.config.environment_keys import CODE_SERVER as CODE
from bot.config.environments import EnvironmentConfig
from bot.config.policy import Config
from bot.core.errors import UserError
from bot.environments.machine import shape_of
from bot.environments.record import EnvironmentRecord
from bot.services.snippet import check_allowed
from k8s.environments import CODE_SERVER, JUPYTER, EnvironmentSpec
from k8s.services import ServiceSpec


def url_of(name: str, config: EnvironmentConfig) -> str:
    """Return the environment's URL; "" without an Ingress."""
    return config.url.replace("{name}", name)


def address_of(record: EnvironmentRecord, config: EnvironmentConfig) -> str:
    """Return the address of a service within the cluster; "" for an environment."""
    port = record.service.port if record.service else 0
    return f"env-{record.name}.{config.namespace}:{port}" if port else ""


def service_url_of(name: str, config: EnvironmentConfig) -> str:
    """Return the URL of a service; "" if services have no Ingress."""
    return url_of(name, config) if config.services and config.services.ingress else ""


def service_spec_of(record: EnvironmentRecord, config: Config) -> ServiceSpec:
    """Raises UserError if its image or a volume is no longer allowed."""
    environments, service = config.environments, record.service
    if environments is None or environments.services is None or service is None:
        raise UserError("Services aren't configured.")
    check_allowed(service, environments.services)
    url = urlsplit(service_url_of(record.name, environments))
    return ServiceSpec(
        name=record.name,
        namespace=environments.namespace,
        owner=record.owner,
        team=record.team,
        image=service.image,
        port=service.port,
        command=service.command,
        env=service.env,
        volumes=service.volumes,
        cpu=service.cpu,
        memory=service.memory,
        gpus=service.gpus,
        path=url.path or "/",
        host=url.hostname or "",
        ingress_class=environments.ingress_class,
        ingress_annotations=environments.ingress_annotations,
        shape=shape_of("", service.gpus, config),
    )


def spec_of(record: EnvironmentRecord, config: Config) -> EnvironmentSpec:
    """Raises UserError if its image, size, or profile is no longer configured."""
    environments = config.environments
    image = environments.image(record.image) if environments else None
    size = environments.size(record.size) if environments else None
    if environments is None or image is None or size is None:
        what, name = ("size", record.size) if image else ("image", record.image)
        gone = f"{what.capitalize()} {name} is no longer configured."
        raise UserError(f"{gone} Start the environment with another {what}=.")
    url = urlsplit(url_of(record.name, environments))
    return EnvironmentSpec(
        name=record.name,
        namespace=environments.namespace,
        owner=record.owner,
        team=record.team,
        image=image.image,
        server=CODE_SERVER if image.server == CODE else JUPYTER,
        command=image.command,
        cpu=size.cpu,
        memory=size.memory,
        gpus=record.gpus,
        home=record.home,
        path=url.path or "/",
        host=url.hostname or "",
        ingress_class=environments.ingress_class,
        ingress_annotations=environments.ingress_annotations,
        shape=shape_of(record.profile, record.gpus, config),
    )
