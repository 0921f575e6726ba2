"""Refuse a sweep whose trials fit no machine or pool of the cluster, and name what fits; write what trials
and profiles request. Pure.

Only the size of an empty machine counts: whether it is free now is for the scheduler and the queue.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import islice

from bot.core.plan import SweepPlan
from bot.core.request import SweepRequest
from bot.platform.config.policy import Config
from bot.platform.config.profiles import Profile
from bot.sweep.launch.pods import shape_for
from bot.text.wording import counted, listed
from k8s.katib.device_claims import device_class
from k8s.katib.manifest import main_container
from k8s.katib.pod_shape import PodShape
from k8s.katib.trial_pod import requests
from k8s.nodes.machines import Amount, Machine, barriers, fits, lacking
from k8s.objects import GPU
from k8s.quantities import amount

MAX_NAMED = 3  # profiles, labels, or machines in one sentence
SIZES = ((Fraction(2**40), "TiB"), (Fraction(2**30), "GiB"), (Fraction(2**20), "MiB"))


def capacity_refusal(
    request: SweepRequest, plan: SweepPlan, owner: str, config: Config, machines: Iterable[Machine]
) -> str:
    """Return why no machines can ever run a trial of this plan, and what fits; "" if some can.

    `machines`: the cluster's nodes. Without a profile, only the number of GPUs counts: Kueue's flavors and
    admission webhooks can add labels and tolerations that Sweepbot doesn't know.
    """
    machines = list(machines)
    known = [*machines, *config.pools]
    profile = next((each for each in config.profiles if each.name == plan.profile), None)
    shape = shape_for(config, owner, profile, plan.gpus)
    if profile is None:
        return _too_many_gpus(shape.resource, plan, known)
    able = sum(1 for each in machines if fits(shape, plan.gpus, each))
    if able >= plan.nodes or any(fits(shape, plan.gpus, each) for each in config.pools):
        return ""
    if able:
        return _too_few(able, profile, plan)
    needed = f"profile={profile.name} can't run on this cluster: {_who(plan)} requests {requested(plan)}"
    return f"{needed}. {_why(shape, plan.gpus, known)} {_fix(request, profile, owner, config, known)}"


def _too_many_gpus(resource: str, plan: SweepPlan, machines: list[Machine]) -> str:
    """Return the refusal of more GPUs than any node has; "" if none has any: they can be scaled to zero.

    Nodes whose GPUs only ResourceClaims can get have none of a device plugin's.
    """
    most, name = max(
        ((int(each.resources.get(resource, 0)), each.name) for each in machines), default=(0, "")
    )
    if not most < plan.gpus or any(resource.startswith(each.uncounted) for each in machines):
        return ""
    if not most:
        return _only_claimable(resource, plan, machines)
    return (
        f"gpus={plan.gpus} can't run on this cluster: {_who(plan)} requests {counted(plan.gpus, 'GPU')}, and "
        f"the largest node ({name.removeprefix('node ')}) has {counted(most, 'GPU')}. *Fix:* Use "
        f"gpus={most}, or ask an admin to declare an autoscaled pool under `pools` in the configuration."
    )


def _only_claimable(resource: str, plan: SweepPlan, machines: list[Machine]) -> str:
    classes = sorted({*filter(None, (device_class(name) for each in machines for name in each.resources))})
    if not classes:
        return ""
    return (
        f"gpus={plan.gpus} can't run on this cluster: {_who(plan)} requests {resource}, and the nodes offer "
        f"their GPUs only by {'DeviceClass' if len(classes) == 1 else 'DeviceClasses'} {listed(classes)}. "
        "*Fix:* Ask an admin to declare in the configuration a profile with `device_class` under `profiles`, "
        f"or an autoscaled pool with {resource} under `pools`."
    )


def _too_few(able: int, profile: Profile, plan: SweepPlan) -> str:
    """Return the refusal of more nodes than the cluster has. A pool can have any number of machines."""
    has = "only one machine has" if able == 1 else f"only {able} machines have"
    return (
        f"profile={profile.name} nodes={plan.nodes} can't run on this cluster: each node of a trial requests "
        f"{requested(plan)}, and {has} that. *Fix:* Use nodes={able}."
    )


def unfitting(config: Config, machines: Iterable[Machine]) -> list[tuple[Profile, str]]:
    """Return the profiles that fit no machine and no team's machines, each with the reason."""
    known = [*machines, *config.pools]
    owners = ["", *(team.members[0] for team in config.teams if team.members)]
    found = []
    for profile in config.profiles:
        shapes = [shape_for(config, owner, profile, profile.gpus) for owner in owners]
        if not any(fits(shape, profile.gpus, each) for shape in shapes for each in known):
            found.append((profile, _why(shapes[0], profile.gpus, known)))
    return found


def _why(shape: PodShape, gpus: int, machines: list[Machine]) -> str:
    """Name the largest machine that is only too small; otherwise what keeps the trial from all of them."""
    open_to = [each for each in machines if not barriers(shape, gpus, each)]
    if open_to:
        largest = max(
            open_to, key=lambda each: (each.resources.get(shape.resource, 0), each.resources.get("cpu", 0))
        )
        short = lacking(shape, gpus, largest)
        has = described({name: largest.resources.get(name, 0) for name in short})
        return f"The largest machine that it can use ({largest.name}) has {has}."
    large = [each for each in machines if not lacking(shape, gpus, each)]
    if not large:
        return "No machine is large enough."
    found = dict.fromkeys(why for each in large for why in barriers(shape, gpus, each))
    more = "" if len(found) <= MAX_NAMED else f" and {len(found) - MAX_NAMED} more"
    which = (
        "The only machine large enough is"
        if len(large) == 1
        else f"All {len(large)} machines large enough are"
    )
    return f"{which} excluded by {listed([*found][:MAX_NAMED])}{more}."


def _who(plan: SweepPlan) -> str:
    return "each node of a trial" if plan.nodes > 1 else "a trial"


def _fix(request: SweepRequest, profile: Profile, owner: str, config: Config, machines: list[Machine]) -> str:
    others = [
        each.name
        for each in config.profiles
        if each.name != profile.name
        and bool(each.gpus) == bool(profile.gpus)
        and any(fits(shape_for(config, owner, each, each.gpus), each.gpus, m) for m in machines)
    ]
    sizes = ((count, shape_for(config, owner, profile, count)) for count in range(request.gpus - 1, 0, -1))
    fewer = (count for count, shape in sizes if any(fits(shape, count, each) for each in machines))
    choices = [f"gpus={count}" for count in islice(fewer, 1)]  # the most that fit
    choices += [f"profile={name}" for name in others[:MAX_NAMED]]
    if choices:
        return f"*Fix:* Use {listed(choices, 'or')}."
    return "*Fix:* Ask an admin to check `profiles` and `pools` in Sweepbot's configuration."


def requested(plan: SweepPlan) -> str:
    """Return what a trial requests: `8 GPUs, 96 CPUs, and 1 TiB of memory`."""
    resources = main_container(plan.with_pod).get("resources", {})
    sizes = {**resources.get("requests", {}), **resources.get("limits", {})}
    sizes |= {plan.resource: plan.gpus} if plan.gpus else {}  # a claim isn't among them
    return described({name: amount(str(size)) for name, size in sizes.items()})


def described(sizes: Mapping[str, Amount]) -> str:
    """Return resources as people read them, GPUs first."""
    names = sorted(sizes, key=lambda name: ("/" not in name, name))
    return listed([_size(name, sizes[name]) for name in names]) or "no resources"


def profile_size(profile: Profile, config: Config) -> str:
    """Return what one trial of a profile requests."""
    sizes = requests(shape_for(config, "", profile, profile.gpus), profile.gpus)
    return described({name: amount(size) for name, size in sizes.items()})


def _size(name: str, size: Amount) -> str:
    if name == GPU or device_class(name):
        return counted(int(size), "GPU")
    if name == "cpu":
        return counted(int(size), "CPU") if size == int(size) else f"{float(size):g} CPUs"
    if name == "memory":
        return f"{_bytes(size)} of memory"
    return f"{int(size)} {name}"


def _bytes(size: Amount) -> str:
    unit, name = next((each for each in SIZES if size >= each[0]), SIZES[-1])
    return f"{float(size / unit):.4g} {name}"
