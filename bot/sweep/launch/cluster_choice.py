"""Rank the clusters that can run a sweep: free GPUs, price, what waits there, and then their order; word the
choice, or that none can run it. Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from bot.core.errors import UserError
from bot.platform.config.clusters import TrialCluster, find_cluster
from bot.sweep.launch.plan import Order
from bot.text.number_format import money
from bot.text.wording import counted, listed


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A cluster as it is now."""

    cluster: TrialCluster
    refusal: str = ""  # why it can't run the sweep
    free: int | None = None  # GPUs that this sweep's trials could get at once; None: unknown
    price: float | None = None  # of one GPU-hour, the highest that it can be there; None: unknown
    waiting: int = 0  # pods that wait for GPUs, and Workloads in the queue


def choose(candidates: Iterable[Candidate], peak: int, currency: str = "") -> tuple[TrialCluster, str]:
    """Return the best cluster, and why, in one line. Raises UserError if none can run the sweep.

    Of those that can start all parallel trials now, the cheapest; with an unknown price, none is cheaper.
    `peak`: GPUs of all parallel trials; more of them free makes no cluster better.
    """
    known = list(candidates)
    able = [each for each in known if not each.refusal]
    if not able:
        raise UserError(
            f"No cluster can run this sweep. {_refusals(known)}. *Fix:* Change the request, or ask an admin.",
            field="cluster",
        )
    prices = {each.cluster.name: each.price for each in able if (each.free or 0) >= peak}
    if None in prices.values():
        prices = {}

    def rank(each: Candidate) -> tuple[int, float, int]:
        return min(each.free or 0, peak), -(prices.get(each.cluster.name) or 0.0), -each.waiting

    found = max(able, key=rank)  # the first of equals
    others = [*(f"{each.cluster.name}: {_state(each, currency)}" for each in able if each is not found)]
    rest = "; ".join([*others, *filter(None, [_refusals(known)])])
    return found.cluster, f"{_state(found, currency)}{f' ({rest})' if rest else ''}"


def pinned(candidate: Candidate) -> None:
    """Raise UserError if the cluster that the request names can't run the sweep."""
    if candidate.refusal:
        raise UserError(
            f"cluster={candidate.cluster.name}: {candidate.refusal}. *Fix:* Use another cluster, or omit "
            "cluster=.",
            field="cluster",
        )


def _state(candidate: Candidate, currency: str) -> str:
    free = "free GPUs unknown" if candidate.free is None else f"{counted(candidate.free, 'GPU')} free"
    price = "" if candidate.price is None else f", {money(candidate.price, currency)} per GPU-hour"
    return f"{free}{price}, {candidate.waiting} waiting"


def _refusals(candidates: Iterable[Candidate]) -> str:
    return listed([f"{each.cluster.name}: {each.refusal}" for each in candidates if each.refusal])


def placed(order: Order, cluster: TrialCluster, reason: str) -> Order:
    """Return the order for this cluster, with its namespace there."""
    namespace = cluster.namespace or order.namespace
    return replace(order, cluster=cluster.name, cluster_reason=reason, namespace=namespace)


def placed_unmeasured(order: Order, clusters: Iterable[TrialCluster], registry: str) -> Order:
    """Return the order for the cluster that it names, else for the first whose nodes can pull the image.

    Raises UserError. Without clusters, the order stays as it is.
    """
    known, image = tuple(clusters), order.space.image or registry
    candidates = [Candidate(cluster=each, refusal=pull_refusal(each, image)) for each in known]
    if order.request.cluster and (named := find_cluster(known, order.request.cluster)):
        pinned(candidates[known.index(named)])
        return placed(order, named, "")
    return placed(order, choose(candidates, 0)[0], "") if known else order


def pull_refusal(cluster: TrialCluster, image: str) -> str:
    return "" if cluster.pulls(image) else f"its nodes can't pull from {image.partition('/')[0]}"
