"""Clusters for trials: `clusters:` of the configuration file. Pure.

The home cluster, where Sweepbot runs, is called main. Without `clusters:`, it runs all trials.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from bot.config.keys import NAMESPACE_NAME, Key, Keys, list_of, string
from bot.config.teams import read_namespace
from bot.config.yaml_reader import Node, entries, matching
from bot.core.errors import UserError
from bot.core.plan import HOME_CLUSTER
from bot.text.wording import did_you_mean, listed, shortened

CLUSTER_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,29}[a-z0-9])?")
KUBECONFIG, CONTEXT = re.compile(r"/\S+"), re.compile(r"\S+")
REGISTRY_HOST = re.compile(r"[A-Za-z0-9.-]+(:[0-9]{1,5})?")
CLUSTER_KEYS: Keys = {
    "kubeconfig": Key(
        meaning="Path of its kubeconfig file in Sweepbot's pods, from a mounted Secret. "
        f"Every cluster but `{HOME_CLUSTER}` needs one.",
        type=string("path", KUBECONFIG.pattern),
        default="none (the home cluster)",
        example="/etc/sweepbot-clusters/west",
    ),
    "context": Key(
        meaning="Context in that file.",
        type=string("context", CONTEXT.pattern),
        default="its current context",
        example="west",
    ),
    "namespace": Key(
        meaning="Namespace for all trials there.",
        type=string("namespace", NAMESPACE_NAME.pattern),
        default="the same namespaces as in the home cluster",
        example="sweeps",
    ),
    "registries": Key(
        meaning="Registries that its nodes can pull images from.",
        type=list_of(string("host", REGISTRY_HOST.pattern)),
        default="all",
        example="[registry.example]",
    ),
    "teams": Key(
        meaning="Teams that can use it.",
        type=list_of(string("team", NAMESPACE_NAME.pattern)),
        default="everyone",
        example="[vision]",
    ),
}


@dataclass(frozen=True, kw_only=True)
class TrialCluster:
    """A cluster that trials can run in."""

    name: str
    kubeconfig: str = ""  # path; "": the home cluster
    context: str = ""  # "": the file's current context
    namespace: str = ""  # of all trials there; "": the home cluster's namespaces
    registries: tuple[str, ...] = ()  # that its nodes can pull from; empty: all
    teams: tuple[str, ...] = ()  # that can use it; empty: everyone

    def allows(self, team: str) -> bool:
        return not self.teams or team in self.teams

    def pulls(self, image: str) -> bool:
        """Return whether its nodes can pull an image, which is named with its registry."""
        return not self.registries or image.partition("/")[0] in self.registries


def remote(clusters: tuple[TrialCluster, ...]) -> tuple[TrialCluster, ...]:
    """Return all but the home cluster."""
    return tuple(each for each in clusters if each.name != HOME_CLUSTER)


def find_cluster(clusters: tuple[TrialCluster, ...], name: str) -> TrialCluster | None:
    return next((each for each in clusters if each.name == name), None)


def cluster_option(value: str, clusters: tuple[TrialCluster, ...]) -> str:
    """Return the name of a configured cluster. Raises UserError."""
    names = [each.name for each in clusters]
    if not names:
        raise UserError("cluster= can't be used: the configuration has no `clusters:`. Remove cluster=.")
    if value.lower() not in names:
        hint = did_you_mean(value.lower(), names) or f" Available: {listed(names)}."
        raise UserError(f'cluster= must be a configured cluster; got "{shortened(value)}".{hint}')
    return value.lower()


def read_clusters(node: Node | None, teams: list[str]) -> tuple[TrialCluster, ...]:
    return tuple(_cluster(name, each, teams) for name, each in node.mapping().items()) if node else ()


def _cluster(name: str, node: Node, teams: list[str]) -> TrialCluster:
    if not CLUSTER_NAME.fullmatch(name):
        node.error(
            f'name must have only lowercase letters, digits, and dashes, at most 31; got "{shortened(name)}"'
        )
    keys = node.mapping(CLUSTER_KEYS)
    _check_kubeconfig(name, node, keys)
    return TrialCluster(
        name=name,
        kubeconfig=matching(keys.get("kubeconfig"), KUBECONFIG, "an absolute path"),
        context=matching(keys.get("context"), CONTEXT, "the name of a context"),
        namespace=read_namespace(keys.get("namespace")),
        registries=tuple(
            matching(each, REGISTRY_HOST, "the host of a registry, without a path")
            for each in entries(keys.get("registries"))
        ),
        teams=tuple(_team(each, teams) for each in entries(keys.get("teams"))),
    )


def _check_kubeconfig(name: str, node: Node, keys: Mapping[str, Node]) -> None:
    """The home cluster is the one that Sweepbot's own credentials are for."""
    if name == HOME_CLUSTER and {"kubeconfig", "context"} & keys.keys():
        node.error(f"{HOME_CLUSTER} is the cluster that Sweepbot runs in; remove kubeconfig and context")
    elif name != HOME_CLUSTER and "kubeconfig" not in keys:
        node.error("missing key: kubeconfig")


def _team(node: Node, teams: list[str]) -> str:
    name = node.text()
    if name and name not in teams:
        node.error(f'must be one of `teams`; got "{shortened(name)}"')
    return name
