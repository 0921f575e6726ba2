"""Clusters for trials: `clusters:` of the configuration file. Pure.

The main cluster, where Sweepbot runs, is called main. Without `clusters:`, it runs all trials.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from bot.core.plan import HOME_CLUSTER
from bot.platform.config.rules import Key, Matching, Name, Problem, Several
from bot.platform.config.section import Section
from bot.platform.config.value_types import Namespace, TeamName, Text

CLUSTER_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,29}[a-z0-9])?")
KUBECONFIG, CONTEXT = re.compile(r"/\S+"), re.compile(r"\S+")
REGISTRY_HOST = re.compile(r"[A-Za-z0-9.-]+(:[0-9]{1,5})?")


@dataclass(frozen=True, kw_only=True)
class TrialCluster(Section):
    """A cluster that trials can run in."""

    name: Annotated[str, Name(CLUSTER_NAME, "have only lowercase letters, digits, and dashes, at most 31")]
    kubeconfig: Annotated[
        Text,
        Matching(KUBECONFIG, "an absolute path", "path", shown=False),
        Key("/etc/sweepbot-clusters/west", "none (the home cluster)"),
    ] = ""
    """Path of its kubeconfig file in Sweepbot's pods, from a mounted Secret. Every cluster but `main`
    needs one."""
    context: Annotated[
        Text,
        Matching(CONTEXT, "the name of a context", "context", shown=False),
        Key("west", "its current context"),
    ] = ""
    """Context in that file."""
    namespace: Annotated[Namespace, Key("sweeps", "the same namespaces as in the home cluster")] = ""
    """Namespace for all trials there."""
    registries: Annotated[
        Several[
            Annotated[
                Text, Matching(REGISTRY_HOST, "the host of a registry, without a path", "host", shown=False)
            ]
        ],
        Key("[registry.example]", "all"),
    ] = ()
    """Registries that its nodes can pull images from."""
    teams: Annotated[Several[TeamName], Key("[vision]", "everyone")] = ()
    """Teams that can use it."""

    def problems(self, _: Any) -> Iterator[Problem]:
        """The home cluster is the one that Sweepbot's own credentials are for."""
        if self.name == HOME_CLUSTER and (self.kubeconfig or self.context):
            yield "", f"{HOME_CLUSTER} is the cluster that Sweepbot runs in; remove kubeconfig and context"
        elif self.name != HOME_CLUSTER and not self.kubeconfig:
            yield "", "missing key: kubeconfig"

    def allows(self, team: str) -> bool:
        return not self.teams or team in self.teams

    def pulls(self, image: str) -> bool:
        """Return whether its nodes can pull an image, which is named with its registry."""
        return not self.registries or image.partition("/")[0] in self.registries


def remote(clusters: tuple[TrialCluster, ...]) -> tuple[TrialCluster, ...]:
    """Return all but the main cluster."""
    return tuple(each for each in clusters if each.name != HOME_CLUSTER)


def find_cluster(clusters: tuple[TrialCluster, ...], name: str) -> TrialCluster | None:
    return next((each for each in clusters if each.name == name), None)
