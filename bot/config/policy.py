"""The configuration file (SWEEPBOT_CONFIG) as a whole; the modules beside this one read its parts."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bot.config.allowed import Allowed, read_allowed
from bot.config.clusters import TrialCluster, read_clusters
from bot.config.digest_times import DigestSchedule, read_digests
from bot.config.elastic import ElasticDeployment, read_elastic
from bot.config.environments import EnvironmentConfig, read_environments
from bot.config.idle_thresholds import read_watch
from bot.config.limits import Launch, Limits, read_launch, read_limits
from bot.config.policy_keys import (
    GOALS,
    KEYS,
    MAX_CURRENCY,
    PARAMETER,
    PLACEHOLDER_IMAGE,
    SEED_KEYS,
    SEED_METRIC,
    SEED_PARAMETER,
    TENSORBOARD_TAG,
    WORKSPACE,
)
from bot.config.profiles import Profile, read_pools, read_profiles
from bot.config.queues import QueuePolicy, read_queues
from bot.config.repositories import Repository, bare, read_prefixes, read_repositories, url_error
from bot.config.teams import Price, Team, read_channel, read_member, read_namespace, read_prices, read_teams
from bot.config.trial_pods import read_trials
from bot.config.yaml_reader import Node, entries, matching, read
from bot.core.errors import UserError
from bot.core.thresholds import IdleThresholds
from bot.registry.images import ImageName
from bot.text.wording import listed, shortened
from k8s.katib.pod_shape import PodShape
from k8s.nodes.machines import Machine

IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}")


@dataclass(frozen=True, kw_only=True)
class SeedDefaults:
    """Of sweeps over seeds, which have no space file."""

    parameter: str = SEED_PARAMETER
    metric: str = SEED_METRIC
    goal: str = GOALS[0]


@dataclass(frozen=True, kw_only=True)
class Config:
    repositories: tuple[Repository, ...]  # the first is the default
    allowed_urls: tuple[str, ...] = ()  # prefixes, each ending in a slash
    images: tuple[str, ...] = ()  # allowed prebuilt images: repositories, or prefixes ending in a slash
    admins: tuple[str, ...] = ()  # Slack user ids
    limits: Limits = field(default_factory=Limits)
    seeds: SeedDefaults = SeedDefaults()
    launch: Launch = field(default_factory=Launch)
    teammates_can_act: bool = False  # cancel, drain, pause, and extend each other's sweeps
    gate: bool = True  # one trial runs first in sweeps with several parallel trials
    guests: bool = False  # whether guests of the Slack workspace can use Sweepbot
    reservations: bool = False  # whether admins can reserve GPUs for teams
    placeholder_image: str = PLACEHOLDER_IMAGE  # of the pods that hold reserved GPUs
    workspaces: tuple[str, ...] = ()  # ids of other Slack workspaces whose members can use Sweepbot
    teams: tuple[Team, ...] = ()
    queueing: QueuePolicy = field(default_factory=QueuePolicy)  # `queues:` and `priorities:`
    clusters: tuple[TrialCluster, ...] = ()  # in order of preference; none: the home cluster alone
    prices: tuple[Price, ...] = ()  # the most specific match of a model's name wins
    currency: str = "$"
    digests: tuple[DigestSchedule, ...] = ()  # at most one per channel
    warnings: IdleThresholds = field(default_factory=IdleThresholds)
    admin_channel: str = ""  # Slack channel id for GPU errors
    self_assigned: frozenset[str] = frozenset()  # people who chose their team: no permission
    trials: PodShape = field(default_factory=PodShape)  # what their pods need on this cluster
    profiles: tuple[Profile, ...] = ()  # machine types; the first is the default
    pools: tuple[Machine, ...] = ()  # autoscaled; one machine of each
    allowed: Allowed = field(default_factory=Allowed)  # what space files can add to pods
    namespaces: tuple[str, ...] = ()  # for trials, in addition to K8S_NAMESPACE
    environments: EnvironmentConfig | None = None  # None: there are none
    elastic: tuple[ElasticDeployment, ...] = ()  # Deployments whose replicas follow free GPUs
    channel_repos: Mapping[str, str] = field(default_factory=dict)  # by channel id, from /sweep setup
    channel_namespaces: Mapping[str, str] = field(default_factory=dict)  # as above

    def names(self, user: str) -> bool:
        """Return whether this person is named here, which admits them from any Slack workspace."""
        return user in self.admins or user in self.launch.people


def read_config(path: Path) -> Config:
    """Read the file. Raises UserError if it can't be read or has errors."""
    try:
        return parse_config(path.read_text(), path.name)
    except OSError as error:
        raise UserError(f"SWEEPBOT_CONFIG: {path} can't be read ({error.strerror}).") from None


def parse_config(text: str, file: str) -> Config:
    """Raise UserError with all errors of the file, each with its line."""
    root = read(text, file)
    keys = root.mapping(KEYS)
    teams, limits = read_teams(keys.get("teams")), read_limits(keys.get("limits"))
    config = Config(
        repositories=read_repositories(keys["repositories"]) if "repositories" in keys else (),
        allowed_urls=read_prefixes(keys.get("allowed_urls")),
        images=tuple(_image(item) for item in entries(keys.get("images"))),
        admins=tuple(read_member(item) for item in entries(keys.get("admins"))),
        limits=limits,
        seeds=_seeds(keys.get("seeds")),
        launch=read_launch(keys.get("launch")),
        teammates_can_act=keys["teammates_can_act"].flag() if "teammates_can_act" in keys else False,
        gate=keys["gate"].flag() if "gate" in keys else True,
        guests=keys["guests"].flag() if "guests" in keys else False,
        reservations=keys["reservations"].flag() if "reservations" in keys else False,
        placeholder_image=_placeholder_image(keys.get("placeholder_image")),
        workspaces=tuple(_workspace(item) for item in entries(keys.get("workspaces"))),
        teams=teams,
        queueing=read_queues(keys.get("queues"), keys.get("priorities")),
        clusters=read_clusters(keys.get("clusters"), [team.name for team in teams]),
        prices=read_prices(keys.get("prices"), keys.get("teams")),
        currency=_currency(keys.get("currency")),
        digests=read_digests(keys.get("digests"), teams),
        warnings=IdleThresholds(**read_watch(keys.get("warnings"))),
        admin_channel=read_channel(keys.get("admin_channel")),
        trials=read_trials(keys.get("trials")),
        profiles=read_profiles(keys.get("profiles"), limits.gpus_per_trial, limits.nodes_per_trial),
        pools=read_pools(keys.get("pools")),
        allowed=read_allowed(keys, [team.name for team in teams]),
        namespaces=tuple(read_namespace(item) for item in entries(keys.get("namespaces"))),
        environments=read_environments(keys.get("environments")),
        elastic=read_elastic(keys.get("elastic")),
    )
    _check_team_namespaces(keys.get("teams"), config)
    root.check()
    return config


def _check_team_namespaces(node: Node | None, config: Config) -> None:
    for team in config.teams:
        if node and team.namespace and team.namespace not in config.namespaces:
            where = node.value[team.name]
            where.error(f"namespace must be one of `namespaces`; got {team.namespace}. Add it there.")


def all_namespaces(home: str, config: Config) -> tuple[str, ...]:
    """Return the namespaces for trials; `home` is K8S_NAMESPACE."""
    return tuple(dict.fromkeys((home, *config.namespaces)))


def namespaces_in(cluster: TrialCluster, home: str, config: Config) -> tuple[str, ...]:
    """Return the namespaces for trials in this cluster."""
    return (cluster.namespace,) if cluster.namespace else all_namespaces(home, config)


def repository(requested: str | None, config: Config, channel: str = "") -> Repository:
    """Return the repository of a name or an allowed URL; for None the channel's, or the default.

    Raises UserError.
    """
    requested = requested or config.channel_repos.get(channel)
    for each in config.repositories:
        if requested in {None, each.name} or bare(str(requested)) == bare(each.url):
            return each
    names = f"Available: {listed([f'`{each.name}`' for each in config.repositories])}"
    if requested is None or "/" not in requested:
        raise UserError(f"repo={requested} isn't a configured repository. {names}.", field="repo")
    if error := url_error(requested, ("https",)):
        raise UserError(f"repo={_without_password(requested)}: {error}. {names}.", field="repo")
    if not requested.startswith(config.allowed_urls):
        under = f", or any URL under {listed(config.allowed_urls, 'or')}" if config.allowed_urls else ""
        raise UserError(f"repo={requested} isn't allowed. {names}{under}.", field="repo")
    return Repository(name=bare(requested).split("/", 3)[3].replace("/", "-"), url=requested)


def prebuilt_image(requested: str, config: Config, *, in_file: bool = False) -> ImageName:
    """Return an allowed prebuilt image, of an option or of a space file. Raises UserError."""
    given, field = (f"image: {requested}", "space") if in_file else (f"image={requested}", "image")
    try:
        image = ImageName.parse(requested)
    except ValueError as error:
        raise UserError(f"{given}: {error}.", field=field) from None
    whole = f"{image.registry}/{image.repository}"
    for allowed in config.images:
        if whole == allowed or (allowed.endswith("/") and whole.startswith(allowed)):
            return image
    hint = f"Allowed: {listed(config.images, 'or')}" if config.images else "No images are configured"
    raise UserError(f"{given} isn't allowed (resolved to {whole}). {hint}.", field=field)


def _image(node: Node) -> str:
    """Return it with its registry, as image names are compared: pytorch/ is docker.io/pytorch/."""
    text = node.text()
    try:
        name = ImageName.parse(f"{text}any" if text.endswith("/") else text)
    except ValueError:
        node.error(
            "must be an image repository, or a prefix ending in a slash, such as registry.example/team/"
        )
        return text
    if ":" in text.rpartition("/")[2] or "@" in text:
        node.error("must not have a tag or digest: all tags of the repository are allowed")
    whole = f"{name.registry}/{name.repository}"
    return whole.removesuffix("any") if text.endswith("/") else whole


def _workspace(node: Node) -> str:
    return matching(node, WORKSPACE, "the ID of a Slack workspace such as T012ABC")


def _placeholder_image(node: Node | None) -> str:
    return matching(node, IMAGE, f"an image such as {PLACEHOLDER_IMAGE}") if node else PLACEHOLDER_IMAGE


def _currency(node: Node | None) -> str:
    currency = node.text() if node else "$"
    if node and len(currency) > MAX_CURRENCY:
        node.error(f'must be a currency sign or code, such as EUR; got "{shortened(currency)}"')
    return currency


def _seeds(node: Node | None) -> SeedDefaults:
    keys = node.mapping(SEED_KEYS) if node else {}
    default = SeedDefaults()
    return SeedDefaults(
        parameter=_seed_name(keys.get("parameter"), PARAMETER, default.parameter),
        metric=_seed_name(keys.get("metric"), TENSORBOARD_TAG, default.metric),
        goal=_goal(keys.get("goal"), default.goal),
    )


def _seed_name(node: Node | None, pattern: re.Pattern[str], default: str) -> str:
    return matching(node, pattern, "a name of letters, digits, dots, dashes, and underscores") or default


def _goal(node: Node | None, default: str) -> str:
    goal = node.text() if node else default
    if node and goal and goal not in GOALS:
        node.error(f'must be {listed(GOALS, "or")}; got "{shortened(goal)}"')
    return goal


def _without_password(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//…@", url)
