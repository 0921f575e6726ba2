"""Check the machine profiles: each fits a node or a pool, and the classes that it names exist."""

from bot.config.policy import Config
from bot.doctor.findings import Finding, broken, ok
from bot.launch.capacity import unfitting
from bot.text.wording import counted
from k8s.api.client import KubernetesClient
from k8s.nodes.machines import Machine, read_machine
from k8s.objects import Ref

CHECK = "profiles"


async def profiles(cluster: KubernetesClient, config: Config) -> list[Finding]:
    """Return no findings without `profiles:`. Raises ApiError, UnreachableError."""
    if not config.profiles:
        return []
    machines = [read_machine(node) for node in await cluster.list("Node", "")]
    missing = [await _missing(cluster, kind, name) for kind, name in _classes(config)]
    found = [*too_large(config, machines), *(each for each in missing if each)]
    count = len(config.profiles)
    return found or [ok(CHECK, f"{counted(count, 'profile')} {'fits' if count == 1 else 'fit'} this cluster")]


def too_large(config: Config, machines: list[Machine]) -> list[Finding]:
    fix = "change it under profiles:, or declare its autoscaled pool under pools:, in SWEEPBOT_CONFIG"
    found = unfitting(config, machines)
    return [broken(CHECK, f"{each.name} fits no machine. {why}", fix) for each, why in found]


def _classes(config: Config) -> list[tuple[str, str]]:
    """Return kind and name of the classes that profiles name, each once."""
    named = [("PriorityClass", each.priority_class) for each in config.profiles]
    named += [("RuntimeClass", each.runtime_class) for each in config.profiles]
    return [each for each in dict.fromkeys(named) if each[1]]


async def _missing(cluster: KubernetesClient, kind: str, name: str) -> Finding | None:
    if await cluster.get(Ref(kind, "", name)):
        return None
    fix = f"kubectl get {kind.lower()}  # then change profiles: in SWEEPBOT_CONFIG, or create it"
    return broken(CHECK, f"{kind} {name} doesn't exist", fix)
