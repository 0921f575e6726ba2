"""The configuration file (SWEEPBOT_CONFIG) as a whole, whose parts the modules beside this one declare;
refuse a repository (`repo=`) or a prebuilt image that it doesn't allow.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from bot.core.errors import UserError
from bot.platform.config.allowed import AllowedSecret, AllowedVariable, AllowedVolume, Output
from bot.platform.config.api_access import ApiAccess
from bot.platform.config.clusters import TrialCluster
from bot.platform.config.digest_times import DigestSchedule
from bot.platform.config.elastic import MAX_DEPLOYMENTS, ElasticDeployment
from bot.platform.config.environments import EnvironmentConfig
from bot.platform.config.idle_thresholds import IdleThresholds
from bot.platform.config.limits import Budgets, Launch, Limits, budget_problems
from bot.platform.config.personal import Personal
from bot.platform.config.profiles import PoolMachine, Profile
from bot.platform.config.queues import PRIORITIES, Priority, Queue, QueuePolicy
from bot.platform.config.repositories import EXAMPLE_URL, Repository, UrlPrefix, bare, url_error
from bot.platform.config.rules import Checked, Count, Key, Matching, Problem, Reads, Several
from bot.platform.config.section import Named, Section, glanced, parsed
from bot.platform.config.teams import Prices, Team, all_prices
from bot.platform.config.trial_pods import ConfiguredShape
from bot.platform.config.value_types import STRING, Channel, Flag, Member, Namespace, Text
from bot.platform.config.webhooks import Webhook
from bot.platform.config.yaml_reader import MAX_CHARACTERS, Node, read
from bot.platform.registry.images import ImageName
from bot.text.wording import listed, shortened
from k8s.katib.pod_shape import PodShape

WORKSPACE = re.compile(r"[TE][A-Z0-9]{2,}")
IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}")
GOALS = ("minimize", "maximize")
PLACEHOLDER_IMAGE = "registry.k8s.io/pause:3.10"
PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")
TENSORBOARD_TAG = re.compile(r"[A-Za-z0-9_-]{1,100}")
NAME_RULE = "a name of letters, digits, dots, dashes, and underscores"
MAX_CURRENCY = 8  # characters


def _allowed_image(text: str) -> str:
    """Return it with its registry, as image names are compared: pytorch/ is docker.io/pytorch/."""
    try:
        name = ImageName.parse(f"{text}any" if text.endswith("/") else text)
    except ValueError:
        raise ValueError(
            "must be an image repository, or a prefix ending in a slash, such as registry.example/team/"
        ) from None
    if ":" in text.rpartition("/")[2] or "@" in text:
        raise ValueError("must not have a tag or digest: all tags of the repository are allowed")
    whole = f"{name.registry}/{name.repository}"
    return whole.removesuffix("any") if text.endswith("/") else whole


def _currency(text: str) -> str:
    if len(text) > MAX_CURRENCY:
        raise ValueError(f'must be a currency sign or code, such as EUR; got "{shortened(text)}"')
    return text


AllowedImage = Annotated[Text, AfterValidator(_allowed_image), WithJsonSchema(STRING)]
Currency = Annotated[Text, AfterValidator(_currency), WithJsonSchema(STRING | {"maxLength": MAX_CURRENCY})]
Workspace = Annotated[
    Text, Matching(WORKSPACE, "the ID of a Slack workspace such as T012ABC", "Slack workspace ID")
]
PlaceholderImage = Annotated[
    Text, Matching(IMAGE, f"an image such as {PLACEHOLDER_IMAGE}"), WithJsonSchema(STRING)
]


@dataclass(frozen=True, kw_only=True)
class SeedDefaults(Section):
    """Of sweeps over seeds, which have no space file."""

    parameter: Annotated[Text, Matching(PARAMETER, NAME_RULE), Key("random_seed")] = "seed"
    """Name of the seed's flag."""
    metric: Annotated[Text, Matching(TENSORBOARD_TAG, NAME_RULE), Key("val_loss")] = "loss"
    """Metric of the results. `metric=` overrides it."""
    goal: Annotated[Literal["minimize", "maximize"], Reads(Node.text), Key("maximize")] = "minimize"
    """Direction of the metric. `goal=` overrides it."""


@dataclass(frozen=True)
class _Others:
    """What sections are checked against."""

    teams: Collection[str]
    namespaces: Collection[str]
    limits: Limits


def _teams_problems(teams: tuple[Team, ...], others: _Others) -> Iterator[Problem]:
    for number, team in enumerate(teams):
        if team.namespace and team.namespace not in others.namespaces:
            fix = f"must be one of `namespaces`; got {team.namespace}. Add it there."
            yield (number, "namespace"), fix
    for what in ("namespaces", "members"):  # in two teams, GPU-hours would count twice
        claimed: dict[str, str] = {}
        for number, team in enumerate(teams):
            for each in getattr(team, what):
                if (first := claimed.setdefault(each, team.name)) != team.name:
                    yield number, f"{each} is already in {what} of team {first}"


def _digests_problems(digests: tuple[DigestSchedule, ...], _: _Others) -> Iterator[Problem]:
    for number, channel in _repeated(each.channel for each in digests):
        yield number, f"duplicate channel {channel}; one digest per channel"


def _elastic_problems(deployments: tuple[ElasticDeployment, ...], _: _Others) -> Iterator[Problem]:
    for number, key in _repeated(each.key for each in deployments):
        yield number, f"duplicate Deployment {key}"


def _repeated(values: Iterable[str]) -> Iterator[tuple[int, str]]:
    seen: dict[str, int] = {}
    yield from ((n, each) for n, each in enumerate(values) if seen.setdefault(each, n) != n)


@dataclass(frozen=True, kw_only=True)
class Config(Section):
    repositories: Annotated[Named[Repository], Count(1), Key(f"{{digits: {{url: {EXAMPLE_URL}}}}}")]
    """Repositories by name (lowercase letters, digits, `.`, `-`, `_`). The first is the default."""
    allowed_urls: Annotated[Several[UrlPrefix], Key("[https://github.com/acme/]")] = ()
    """URL prefixes of other repositories, each ending in a slash, that `repo=` can name."""
    images: Annotated[Several[AllowedImage], Key("[pytorch/pytorch, registry.example/team/]")] = ()
    """Allowed prebuilt images: image repositories without a tag, or prefixes ending in a slash."""
    admins: Annotated[Several[Member], Key("[U012ABC]")] = ()
    """Slack users who can manage all sweeps and run `/sweep doctor` and `/sweep setup`."""
    limits: Annotated[Limits, Key()] = field(default_factory=Limits)
    """Maximum values of one sweep."""
    seeds: Annotated[SeedDefaults, Key()] = SeedDefaults()
    """Defaults of sweeps over seeds (`seeds=`), which have no space file."""
    launch: Annotated[Launch, Key()] = field(default_factory=Launch)
    """Who can start sweeps, where, and how large. Admins always can."""
    budgets: Annotated[Budgets, Key()] = field(default_factory=Budgets)
    """What sweeps can use without approval. Above it, a sweep waits before its build
    ([details](search.md#budgets-of-a-month))."""
    teammates_can_act: Annotated[Flag, Key("true")] = False
    """Let members of a team cancel, drain, pause, and extend each other's sweeps."""
    gate: Annotated[Flag, Key("false")] = True
    """Run one trial first, and the others once it is healthy, in sweeps with several parallel trials.
    `gate=` overrides it."""
    search_service: Annotated[Flag, Key("true")] = False
    """Let `algorithm: auto` use Sweepbot's own search service, in all clusters. Needs deploy/search
    ([details](install.md#install-the-search-service)). Without it, `auto` is `random`."""
    guests: Annotated[Flag, Key("true")] = False
    """Let guests of the Slack workspace use Sweepbot."""
    reservations: Annotated[Flag, Key("true")] = False
    """Let admins reserve GPUs for teams: `/gpus reserve`. Needs Kueue and deploy/reservations."""
    placeholder_image: Annotated[
        PlaceholderImage, Key("registry.lab.example/pause:3.10", f"`{PLACEHOLDER_IMAGE}`")
    ] = PLACEHOLDER_IMAGE
    """Image of the pods that hold reserved GPUs: one that only waits."""
    workspaces: Annotated[Several[Workspace], Key("[T012ABC]")] = ()
    """IDs of other Slack workspaces whose members can use Sweepbot through Slack Connect."""
    teams: Annotated[
        Named[Team], Checked(_teams_problems), Key("{vision: {namespaces: [vision], members: [U012ABC]}}")
    ] = ()
    """Teams by name (lowercase letters, digits, dashes; at most 63 characters)."""
    queues: Annotated[
        Named[Queue],
        Key("{research: {}, urgent: {teams: [vision]}}", "none: trials aren't queued by Sweepbot"),
    ] = ()
    """Kueue's LocalQueues that trials can use, by name. The first is the default."""
    priorities: Annotated[
        Named[Priority], Key("{low: {class: sweeps-low}, normal: {class: sweeps-normal}}")
    ] = ()
    """Priorities of trials: `low`, `normal` (the default of sweeps), and `high`, which only admins can
    use unless it names teams or people."""
    # In order of preference.
    clusters: Annotated[
        Named[TrialCluster],
        Key(
            "{main: {}, west: {kubeconfig: /etc/sweepbot-clusters/west}}",
            "all trials run in the cluster that Sweepbot runs in",
        ),
    ] = ()
    """Clusters for trials, by name, in order of preference ([details](clusters.md)). `main` is the one
    that Sweepbot runs in."""
    # With those of teams, which name their team.
    prices: Annotated[Prices, Key('{"NVIDIA H100": 2.5}')] = ()
    """Price of one GPU-hour by model: a regular expression for the start of the model's name. The most
    specific match wins; a MIG slice costs its share of the card."""
    currency: Annotated[Currency, Key("EUR", "`$`")] = "$"
    """Currency of `prices`: a sign or a code."""
    digests: Annotated[Several[DigestSchedule], Checked(_digests_problems), Key("[{channel: C012ABC}]")] = ()
    """Daily GPU usage digests, at most one per channel. `/sweep setup` adds more."""
    warnings: Annotated[IdleThresholds, Key()] = field(default_factory=IdleThresholds)
    """Idle-GPU warning thresholds. 0 turns a warning off."""
    admin_channel: Annotated[Channel, Key("C012ABC")] = ""
    """Slack channel for GPU errors and rejected configuration files."""
    trials: Annotated[ConfiguredShape, Key()] = field(default_factory=PodShape)
    """What the pods of all trials need on this cluster."""
    profiles: Annotated[Named[Profile], Key("{1xh100: {gpus: 1, cpu: 16, memory: 200Gi}}")] = ()
    """Machine types by name; `profile=` chooses one. The first is the default, scaled by `gpus=`."""
    pools: Annotated[Named[PoolMachine], Key("{h100: {gpus: 8, cpu: 190, memory: 1900Gi}}")] = ()
    """Autoscaled pools by name: what one machine has, even while the pool is empty. A sweep
    that fits no node and no pool is refused."""
    volumes: Annotated[
        Named[AllowedVolume], Key("{datasets: {claim: datasets, at: /data, read_only: true}}")
    ] = ()
    """Volumes by name that space files can mount with `volumes`."""
    env: Annotated[Several[AllowedVariable], Key("[HF_HOME, WANDB_PROJECT]")] = ()
    """Environment variables that space files can set with `env`."""
    secrets: Annotated[
        Named[AllowedSecret], Key("{wandb: {secret: wandb-login, keys: [WANDB_API_KEY]}}")
    ] = ()
    """Secrets by name that space files can use with `secrets`. Whoever can start a sweep can read
    them."""
    output: Annotated[Output | None, Key("{claim: checkpoints, at: /ckpt, flag: output_dir}")] = None
    """Directory per trial that outlives its pod, for checkpoints ([details](checkpoints.md))."""
    namespaces: Annotated[Several[Namespace], Key("[vision]")] = ()
    """More namespaces for trials. `/sweep setup` assigns them to channels."""
    api: Annotated[ApiAccess, Key()] = field(default_factory=ApiAccess)
    """Access to the HTTP API without personal tokens."""
    webhooks: Annotated[
        Named[Webhook], Key("{alerts: {url: https://hooks.example.com/sweepbot}}", "none")
    ] = ()
    """Receivers of events of sweeps, by name ([details](api.md#webhooks))."""
    environments: Annotated[EnvironmentConfig | None, Key(default="none")] = None
    """Research environments (`/env`): Jupyter or code-server, each with a home that survives it."""
    elastic: Annotated[
        Several[ElasticDeployment],
        Count(0, MAX_DEPLOYMENTS),
        Checked(_elastic_problems),
        Key("[{namespace: serving, deployment: llm, gpus: 2, max: 6, channel: C012ABC}]"),
    ] = ()
    """Deployments whose replicas follow free GPUs or CPUs ([details](elastic.md))."""
    # From /sweep setup, not from the file.
    self_assigned: SkipJsonSchema[frozenset[str]] = frozenset()  # people who chose their team: no permission
    people: SkipJsonSchema[Mapping[str, Personal]] = field(default_factory=dict)  # their settings, by user
    channel_repos: SkipJsonSchema[Mapping[str, str]] = field(default_factory=dict)  # by channel id
    channel_namespaces: SkipJsonSchema[Mapping[str, str]] = field(default_factory=dict)  # as above

    def problems(self, _: _Others) -> Iterator[Problem]:
        team_budgets = [each.budget for each in self.teams]
        has_approvers = bool(self.admins or self.budgets.approvers)
        has_prices = bool(self.prices) or any(each.prices for each in self.teams)
        currency = self.currency if has_prices else ""
        of_ci = [each.budget for each in self.api.ci]
        yield from budget_problems(self.budgets, team_budgets, of_ci, currency, has_approvers=has_approvers)
        claiming = [each.name for each in self.profiles if each.device_class]
        if claiming and self.queues:
            why = "device_class can't be used with queues: Kueue's quotas don't count these GPUs"
            yield f"profiles.{claiming[0]}", why

    @property
    def queueing(self) -> QueuePolicy:
        rising = sorted(self.priorities, key=lambda each: PRIORITIES.index(each.name))
        return QueuePolicy(queues=self.queues, priorities=tuple(rising))

    def names(self, user: str) -> bool:
        """Return whether this person is named here, which admits them from any Slack workspace."""
        return user in self.admins or user in self.launch.people


def muting(sweep: str, config: Config) -> dict[str, str]:
    """Return the names of the people who don't want to be mentioned about a sweep, by user."""
    return {user: own.name or "someone" for user, own in config.people.items() if sweep in own.muted}


def read_config(path: Path) -> Config:
    """Read the file. Raises UserError if it can't be read or has errors."""
    return parse_config(read_text(path), path.name)


def read_text(path: Path) -> str:
    """Return the text, at most one character beyond the limit of `parse_config`. Raises UserError."""
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(MAX_CHARACTERS + 1)
    except OSError as error:
        raise UserError(f"The configuration file {path} can't be read ({error.strerror}).") from None
    except UnicodeDecodeError:
        raise UserError(f"The configuration file {path} isn't UTF-8 text.") from None


def parse_config(text: str, file: str) -> Config:
    """Raise UserError with all errors of the file, each with its line."""
    root = read(text, file)
    keys: dict[str, Node] = root.value if isinstance(root.value, dict) else {}
    teams, namespaces = (keys[key].value if key in keys else () for key in ("teams", "namespaces"))
    others = _Others(
        teams=teams if isinstance(teams, dict) else (),
        namespaces={each.raw for each in namespaces} if isinstance(namespaces, list) else (),
        limits=glanced(Limits, keys.get("limits")),
    )
    config = parsed(Config, root, others)
    return replace(config, prices=all_prices(config.prices, config.teams))


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
        fix = "*Fix:* Ask an admin to add it to `repositories:`."
        raise UserError(f"repo={requested} isn't a configured repository. {names}. {fix}", field="repo")
    if error := url_error(requested, ("https",)):
        shown = re.sub(r"//[^/@]*@", "//…@", requested)  # without the password
        raise UserError(f"repo={shown}: {error}. {names}.", field="repo")
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
