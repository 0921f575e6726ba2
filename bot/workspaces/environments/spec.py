"""Turn a record and the configuration into the objects' specification, with URL, address, login, and a
profile's GPUs, or refuse what is no longer configured. Pure.
"""

import hashlib
import hmac
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from bot.core.errors import UserError
from bot.platform.config.environments import CODE_SERVER as CODE
from bot.platform.config.environments import EnvironmentConfig
from bot.platform.config.policy import Config
from bot.platform.config.profiles import Profile, chosen, shaped
from bot.workspaces.environments.record import EnvironmentRecord
from bot.workspaces.services.snippet import check_allowed
from k8s.environments import CODE_SERVER, JUPYTER, EnvironmentSpec
from k8s.katib.pod_shape import PodShape
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
    return ServiceSpec(
        **_common(record, environments, service_url_of(record.name, environments)),
        image=service.image,
        port=service.port,
        command=service.command,
        env=service.env,
        volumes=service.volumes,
        cpu=service.cpu,
        memory=service.memory,
        gpus=service.gpus,
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
    return EnvironmentSpec(
        **_common(record, environments, url_of(record.name, environments)),
        image=image.image,
        server=CODE_SERVER if image.server == CODE else JUPYTER,
        command=image.command,
        cpu=size.cpu,
        memory=size.memory,
        gpus=record.gpus,
        home=record.home,
        shape=shape_of(record.profile, record.gpus, config),
    )


def _common(record: EnvironmentRecord, config: EnvironmentConfig, url: str) -> dict[str, Any]:
    """Return what the specifications of environments and of services have alike."""
    parts = urlsplit(url)
    return {
        "name": record.name,
        "namespace": config.namespace,
        "owner": record.owner,
        "team": record.team,
        "path": parts.path or "/",
        "host": parts.hostname or "",
        "ingress_class": config.ingress_class,
        "ingress_annotations": config.ingress_annotations,
    }


def checked_gpus(profile: str, wanted: int | None, before: int, profiles: tuple[Profile, ...]) -> int:
    """Return the GPUs of an environment: `wanted`, or else as before, or else one if the profile has GPUs.

    Raises UserError, with its field, for an unknown profile and for one that contradicts `wanted`.
    """
    found = chosen(profiles, profile, None) if profile else None
    if found is None:
        return before if wanted is None else wanted
    if found.device_class:
        why = "claims GPUs by a DeviceClass, which only trials can. Use another profile="
        raise UserError(f"profile={profile} {why}.", field="profile")
    if wanted is None:
        return before or 1 if found.gpus else 0
    if found.gpus and not wanted:
        raise UserError(f"gpus= must be at least 1 with profile={profile}, which has GPUs.", field="gpus")
    if wanted and not found.gpus:
        raise UserError(f"gpus= must be 0 with profile={profile}, which has no GPUs.", field="gpus")
    return wanted


def shape_of(profile: str, gpus: int, config: Config) -> PodShape:
    """Return where the pod runs, and what its GPUs are. CPU and memory are those of the size.

    Without a profile, a pod with GPUs runs where trials run, and others run anywhere.
    Raises UserError if the profile is no longer configured.
    """
    if not profile:
        return config.trials if gpus else PodShape()
    found = chosen(config.profiles, still_configured(profile, config.profiles), None)
    return replace(shaped(config.trials, found, gpus), pack=False)


def still_configured(profile: str, profiles: tuple[Profile, ...]) -> str:
    """Return the profile of a record, which can be "". Raises UserError if it is no longer configured."""
    if not profile or profile in {each.name for each in profiles}:
        return profile
    fix = "Start the environment with another profile=, or delete it and start a new one: its home is kept."
    raise UserError(f"Profile {profile} is no longer configured. {fix}", field="profile")


def login(key: str, uid: str, start: int) -> str:
    """Return the login of this start of the environment with this uid: stored only in its Secret.

    Args:
        key: SLACK_BOT_TOKEN, which all workers have. With another one, the login of a running environment
            can't be computed any more; a new start sets a new one.
    """
    return hmac.new(key.encode(), f"environment {uid} {start}".encode(), hashlib.sha256).hexdigest()[:40]
