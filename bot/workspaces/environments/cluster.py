"""Read and write environments, and services, in the cluster, or say that another object has the name.

Where services aren't configured, Deployments aren't read: there can be no permission for it.

Functions raise ApiError, UnreachableError, and NewerFormatError: a newer worker must go on.
"""

import logging
from collections.abc import Mapping
from typing import Any

from bot.core.errors import RetryAfterError, UserError
from bot.core.work_item import WorkItem
from bot.platform.clients import Clients
from bot.platform.config.environments import EnvironmentConfig
from bot.platform.config.policy import Config
from bot.platform.slack.mrkdwn import code
from bot.workspaces.environments.record import (
    Environment,
    EnvironmentRecord,
    Wanted,
    dump,
    read,
    read_or_outline,
)
from bot.workspaces.environments.spec import login, service_spec_of, spec_of
from k8s.api.client import Manifests
from k8s.api.errors import ApiError
from k8s.environments import (
    RECORD,
    claim,
    home_ref,
    ingress,
    ref,
    secret,
    service,
    stateful_set,
    template,
)
from k8s.objects import (
    ENVIRONMENT_LABEL,
    HOME_LABEL,
    OURS,
    OWNER_LABEL,
    Manifest,
    ref_of,
    replacing,
    still_live,
)
from k8s.retry import Retry
from k8s.services import deployment, network_objects

log = logging.getLogger(__name__)

KIND = "environment"  # of the work item that reconciles one
STALE_RETRY = Retry(base=0.2)  # the StatefulSet's controller has just written its status


def item(name: str) -> WorkItem:
    return WorkItem(KIND, name)


def configured(config: Config) -> EnvironmentConfig:
    """Raises UserError if there are no environments here."""
    if config.environments is None:
        raise UserError("Environments aren't configured.")
    return config.environments


async def load(name: str, clients: Clients) -> Environment | None:
    config = configured(clients.config)
    found = await clients.cluster.get(ref(config.namespace, name))
    if found is None and config.services:
        found = await clients.cluster.get(ref(config.namespace, name, "Deployment"))
    return read(found) if found else None


async def load_all(clients: Clients) -> list[Environment]:
    """Return all environments, also those of a newer version, which only show what their objects do."""
    config = configured(clients.config)
    found = await clients.cluster.list("StatefulSet", config.namespace, labels=OURS)
    if config.services:
        found = [*found, *await clients.cluster.list("Deployment", config.namespace, labels=OURS)]
    return [each for one in found if (each := read_or_outline(one))]


async def pods_of(name: str, clients: Clients) -> Manifests:
    """Return the pods, which can be terminating: at most one of an environment's is not."""
    namespace, labels = configured(clients.config).namespace, f"{ENVIRONMENT_LABEL}={name}"
    pods: Manifests = await clients.cluster.list("Pod", namespace, labels=labels)
    return [pod for pod in pods if still_live(pod)]


async def homes(clients: Clients) -> Manifests:
    namespace = configured(clients.config).namespace
    return await clients.cluster.list("PersistentVolumeClaim", namespace, labels=HOME_LABEL)


async def has_home(record: EnvironmentRecord, clients: Clients) -> bool:
    """Return whether its home exists: one that was stopped at once, or rejected, has none."""
    namespace = configured(clients.config).namespace
    return bool(record.home and await clients.cluster.get(home_ref(namespace, record.home)))


async def create(record: EnvironmentRecord, clients: Clients) -> None:
    """Create the StatefulSet or the Deployment without pods.

    Raises UserError for an unknown image, and for a name that another object has, such as one being deleted.
    """
    if record.service:
        made = deployment(service_spec_of(record, clients.config), dump(record))
    else:
        made = stateful_set(spec_of(record, clients.config), dump(record))
    try:
        await clients.cluster.create(made)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
        taken = f"The name {code(record.name)} is taken in the cluster."
        raise UserError(f"{taken} Use another name, or try again later.") from None


async def save(
    environment: Environment,
    record: EnvironmentRecord,
    clients: Clients,
    spec: Mapping[str, Any] | None = None,
) -> Environment:
    """Write the record, and parts of its object's spec in the same step.

    An environment that shall not run loses its pod in this step. Otherwise one that is started again at once
    would keep its old pod, with the login and the image of the start before.

    Raises RetryAfterError if it has changed since it was read: its item must run again. A status that its
    controller wrote, as right after the creation, is no change: what was posted isn't posted again.
    """
    meta = {"resourceVersion": environment.version, "annotations": {RECORD: dump(record)}}
    if record.wanted is not Wanted.RUNNING and environment.replicas:
        spec = {"replicas": 0}
    patch: Manifest = {"metadata": meta} | ({"spec": dict(spec)} if spec else {})
    try:
        saved = read(await clients.cluster.merge(ref_of(environment.manifest), patch))
    except ApiError as error:
        if not error.stale:
            raise
        now = await load(record.name, clients)
        if now and now.is_like(environment):
            return await save(now, record, clients, spec)
        raise RetryAfterError(
            f"environment {record.name} has changed since it was read", STALE_RETRY.seconds()
        ) from error
    if saved is None:
        raise RetryAfterError(f"environment {record.name} is being deleted", STALE_RETRY.seconds())
    return saved


async def start_pod(environment: Environment, clients: Clients) -> Environment:
    """Create what the pod needs, then the pod. Raises UserError if its image isn't configured."""
    record, uid = environment.record, environment.uid
    if record.service:
        return await _start_service(environment, record.replicas, clients)
    spec = spec_of(record, clients.config)
    await _create_home(record, clients)
    token = login(clients.settings.slack_bot_token.get_secret_value(), uid, record.starts)
    await _apply(secret(spec, uid, token), clients)
    await _apply(service(spec, uid), clients)
    if spec.host:
        await _apply(ingress(spec, uid), clients)
    # The image or the size can be another one since the last start.
    pod = replacing(environment.manifest["spec"]["template"], template(spec))
    return await save(environment, record, clients, {"replicas": 1, "template": pod})


async def _start_service(environment: Environment, replicas: int, clients: Clients) -> Environment:
    """Create what connects to the pods, then the pods. The template stays as it was created."""
    spec = service_spec_of(environment.record, clients.config)
    for each in network_objects(spec, environment.uid):
        await _apply(each, clients)
    return await save(environment, environment.record, clients, {"replicas": replicas})


async def _create_home(record: EnvironmentRecord, clients: Clients) -> None:
    """Create the home if there is none. Raises UserError for one of another person."""
    config = configured(clients.config)
    there = await clients.cluster.get(home_ref(config.namespace, record.home))
    if there is None:
        made = claim(
            config.namespace,
            record.home,
            record.owner,
            record.home_size,
            storage_class=config.storage_class,
            shared=config.shared_homes,
        )
        await clients.cluster.create(made)
        return
    if owner_of(there) != record.owner:
        raise UserError(f"Home {record.home} belongs to someone else. Start it with another home=.")


def owner_of(obj: Manifest) -> str:
    return str((obj["metadata"].get("labels") or {}).get(OWNER_LABEL, ""))


async def _apply(manifest: Manifest, clients: Clients) -> None:
    """Create the object, or write this start's login, URL, and owner into it.

    The owner, because an object of a deleted environment of this name can exist until it is collected.
    """
    try:
        await clients.cluster.create(manifest)
    except ApiError as error:
        if not error.exists:
            raise
        await clients.cluster.merge(ref_of(manifest), manifest)
