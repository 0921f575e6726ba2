"""Build the objects of a service: a Deployment, which has no home and no login, and what belongs to it.

The rest is as for an environment. `Recreate`, because a template never changes while pods run, and an update
from outside must not need more GPUs than the service has.
"""

from dataclasses import dataclass, field

from k8s.environments import (
    RECORD,
    SHM,
    UID,
    Workload,
    ingress,
    no_gpus,
    owned,
    pod_template,
    readiness,
    ref,
    service,
)
from k8s.objects import ENVIRONMENT_LABEL, SERVICE_LABEL, Manifest


@dataclass(frozen=True, kw_only=True)
class ServiceSpec(Workload):
    kind = "Deployment"
    port: int
    command: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    volumes: dict[str, str] = field(default_factory=dict)  # claim -> mount path; read-only


def deployment(spec: ServiceSpec, record: str) -> Manifest:
    """Return it without pods: `replicas` is 0 until everything else exists."""
    where, labels = ref(spec.namespace, spec.name, spec.kind), {ENVIRONMENT_LABEL: spec.name}
    return owned("apps/v1", where, spec, annotations={RECORD: record}) | {
        "spec": {
            "replicas": 0,
            "strategy": {"type": "Recreate"},
            "revisionHistoryLimit": 1,
            "selector": {"matchLabels": labels},
            "template": _template(spec),
        }
    }


def network_objects(spec: ServiceSpec, uid: str) -> list[Manifest]:
    """Return the Service and, with a host, the Ingress."""
    found = [service(spec, uid, spec.port)]
    return [*found, ingress(spec, uid, spec.port)] if spec.host else found


def _template(spec: ServiceSpec) -> Manifest:
    volumes: list[Manifest] = [
        {
            "name": f"volume-{number}",
            "persistentVolumeClaim": {"claimName": claim, "readOnly": True},
        }
        for number, claim in enumerate(spec.volumes)
    ]
    template = pod_template(spec, _container(spec), volumes, group=UID)
    template["metadata"]["labels"][SERVICE_LABEL] = spec.name
    return template


def _container(spec: ServiceSpec) -> Manifest:
    mounts = [
        {"name": f"volume-{number}", "mountPath": path, "readOnly": True}
        for number, path in enumerate(spec.volumes.values())
    ]
    variables = [{"name": name, "value": value} for name, value in spec.env.items()]
    return {
        **({"command": list(spec.command)} if spec.command else {}),
        "env": [*variables, *no_gpus(spec)],
        "ports": [{"name": "http", "containerPort": spec.port}],
        "readinessProbe": readiness({"tcpSocket": {"port": "http"}}),
        "volumeMounts": [*mounts, SHM],
    }
