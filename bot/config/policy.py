"""The one file of people and policy (SWEEPBOT_CONFIG): which repositories, who may more, how much at most."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from bot.config.digest_times import DigestSchedule, read_digests
from bot.config.idle_thresholds import read_watch
from bot.config.teams import MEMBER, Price, Team, read_channel, read_prices, read_teams
from bot.config.trial_pods import read_trials
from bot.config.yaml_reader import Node, read
from bot.core.errors import UserError
from bot.core.thresholds import IdleThresholds
from bot.core.wording import listed
from bot.registry.images import ImageName
from k8s.katib.spec import PodShape

KEYS = (
    "repositories",
    "allowed_urls",
    "images",
    "admins",
    "limits",
    "launch",
    "teammates_can_act",
    "guests",
    "workspaces",
    "teams",
    "prices",
    "currency",
    "digests",
    "warnings",
    "admin_channel",
    "trials",
    "namespaces",
)
A_MINUTE, LONGEST = 1 / 60, 2**31 // 3600  # hours; Kubernetes takes no deadline of 2**31 seconds or more
URL = re.compile(r"(?P<scheme>https?)://[A-Za-z0-9.-]+(:\d+)?/(?P<path>[A-Za-z0-9._~/-]*)")
EXAMPLE = "https://github.com/acme/digits.git"


@dataclass(frozen=True, kw_only=True)
class Repository:
    name: str
    url: str
    dockerfile: str | None = None  # from the repository's root, as is the next; None: the usual one, if any
    requirements: str | None = None
    install: bool = False  # it has to be installed, not only lie there
    secret: str | None = None  # a Secret with the username and password (or token) for git
    push_secret: str | None = None  # a dockerconfigjson Secret that pushes to its own images; None: as others


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one sweep may ask for at most."""

    gpus_per_trial: int = 8
    parallel: int = 16
    trials: int = 500
    trial_hours: float | None = None
    grace_seconds: int = 600  # of one trial, from SIGTERM to SIGKILL: it holds its GPUs so long


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Who may start a sweep and where; nothing said allows all. Administrators always may."""

    channels: tuple[str, ...] = ()  # Slack channel ids
    people: tuple[str, ...] = ()  # Slack user ids
    gpus: int | None = None  # of one sweep at its peak; a team's own number goes before
    gpus_per_person: int | None = None  # of all live sweeps of one person, each at its peak


@dataclass(frozen=True, kw_only=True)
class Config:
    repositories: tuple[Repository, ...]  # the first is the default
    allowed_urls: tuple[str, ...] = ()  # prefixes, each ending in a slash
    images: tuple[str, ...] = ()  # that need no build: repositories, or prefixes that end in a slash
    admins: tuple[str, ...] = ()  # Slack user ids
    limits: Limits = Limits()
    launch: Launch = Launch()
    teammates_can_act: bool = False  # cancel and extend one another's sweeps
    guests: bool = False  # of the Slack workspace: they can use Sweepbot
    workspaces: tuple[str, ...] = ()  # others of Slack, by id, whose people can use Sweepbot
    teams: tuple[Team, ...] = ()
    prices: tuple[Price, ...] = ()  # the one that says most of a model's name counts
    currency: str = "$"
    digests: tuple[DigestSchedule, ...] = ()  # of a channel one
    warnings: IdleThresholds = field(default_factory=IdleThresholds)  # of idle GPUs
    admin_channel: str = ""  # a Slack channel id: where broken GPUs are told
    self_assigned: frozenset[str] = frozenset()  # who is in a team only by saying so: no right comes of it
    trials: PodShape = field(default_factory=PodShape)  # what their pods need here
    namespaces: tuple[str, ...] = ()  # beside K8S_NAMESPACE, in which a channel's trials may run
    channel_repos: Mapping[str, str] = field(
        default_factory=dict
    )  # the repository of a channel, as set up in Slack
    channel_namespaces: Mapping[str, str] = field(
        default_factory=dict
    )  # the namespace of a channel, likewise

    def names(self, user: str) -> bool:
        """Whether it lets this person in by name, whatever their Slack workspace."""
        return user in self.admins or user in self.launch.people


def parse_config(text: str, file: str) -> Config:
    """Raises UserError with all that is wrong, each with its line."""
    root = read(text, file)
    keys = root.mapping(KEYS, must=("repositories",))
    teams = read_teams(keys.get("teams"))
    config = Config(
        repositories=tuple(_repositories(keys["repositories"])) if "repositories" in keys else (),
        allowed_urls=tuple(_prefix(item) for item in _list(keys.get("allowed_urls"))),
        images=tuple(_image(item) for item in _list(keys.get("images"))),
        admins=tuple(_user(item) for item in _list(keys.get("admins"))),
        limits=_limits(keys.get("limits")),
        launch=_launch(keys.get("launch")),
        teammates_can_act=keys["teammates_can_act"].flag() if "teammates_can_act" in keys else False,
        guests=keys["guests"].flag() if "guests" in keys else False,
        workspaces=tuple(_workspace(item) for item in _list(keys.get("workspaces"))),
        teams=teams,
        prices=read_prices(keys.get("prices")),
        currency=_currency(keys.get("currency")),
        digests=read_digests(keys.get("digests"), teams),
        warnings=IdleThresholds(**read_watch(keys.get("warnings"))),
        admin_channel=read_channel(keys.get("admin_channel")),
        trials=read_trials(keys.get("trials")),
        namespaces=tuple(_namespace(item) for item in _list(keys.get("namespaces"))),
    )
    root.check()
    return config


def all_namespaces(home: str, config: Config) -> tuple[str, ...]:
    """Where trials may run; `home` is the installation's."""
    return tuple(dict.fromkeys((home, *config.namespaces)))


def repository(asked: str | None, config: Config, channel: str = "") -> Repository:
    """What a request names: a configured repository, or a URL under an allowed prefix.

    None is the channel's own, or the default.
    """
    asked = asked or config.channel_repos.get(channel)
    for known in config.repositories:
        if asked in {None, known.name} or bare(str(asked)) == bare(known.url):
            return known
    names = listed([f"`{known.name}`" for known in config.repositories])
    if asked is None or "/" not in asked:
        raise UserError(f"repo={asked} is not a repository I know; there is {names}.")
    if trouble := _url_trouble(asked, ("https",)):
        raise UserError(f"repo={_without_password(asked)}: {trouble}. The configured ones are {names}.")
    if not asked.startswith(config.allowed_urls):
        under = f", and any URL under {listed(config.allowed_urls, 'or')}" if config.allowed_urls else ""
        raise UserError(f"repo={asked} is not allowed here; there is {names}{under}.")
    return Repository(name=bare(asked).split("/", 3)[3].replace("/", "-"), url=asked)


def ready_image(asked: str, config: Config) -> ImageName:
    """An image that needs no build, if it is one of those allowed. Raises UserError."""
    try:
        image = ImageName.parse(asked)
    except ValueError as error:
        raise UserError(f"image={asked}: {error}.") from None
    whole = f"{image.registry}/{image.repository}"
    for allowed in config.images:
        if whole == allowed or (allowed.endswith("/") and whole.startswith(allowed)):
            return image
    there = f"; there is {listed(config.images, 'or')}" if config.images else "; the configuration lists none"
    raise UserError(f"image={asked} is not an image allowed here (as {whole}){there}.")


def is_address(url: str) -> bool:
    """Of a repository, over https or http."""
    return _url_trouble(url, ("https", "http")) is None


def bare(url: str) -> str:
    """As one compares addresses of repositories."""
    return url.rstrip("/").removesuffix(".git")


def _repositories(node: Node) -> list[Repository]:
    found = [_repository(name, each) for name, each in node.mapping().items()]
    if node.value in ({}, None):
        node.wrong("at least one repository is needed")
    return found


def _repository(name: str, node: Node) -> Repository:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_.-]*", name):
        node.wrong(f'"{name}" is not a name: use small letters, digits, dots, dashes and underscores')
    keys = node.mapping(
        ("url", "dockerfile", "requirements", "install", "secret", "push_secret"), must=("url",)
    )
    url = keys["url"].text() if "url" in keys else ""
    if url and (trouble := _url_trouble(url, ("https", "http"))):
        keys["url"].wrong(trouble)
    return Repository(
        name=name,
        url=url,
        dockerfile=_path(keys.get("dockerfile"), "docker/Dockerfile"),
        requirements=_path(keys.get("requirements"), "requirements/train.txt"),
        install=keys["install"].flag() if "install" in keys else False,
        secret=_secret(keys.get("secret")),
        push_secret=_secret(keys.get("push_secret")),
    )


def _secret(node: Node | None) -> str | None:
    name = node.text() if node else None
    if node and name and not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", name):
        node.wrong("must be the name of a Secret of Kubernetes, never what is in it")
    return name


def _path(node: Node | None, example: str) -> str | None:
    path = node.text() if node else None
    if node and path and not re.fullmatch(r"(?!.*\.\.)[A-Za-z0-9_.][A-Za-z0-9_./-]*", path):
        node.wrong(f"must be a path inside the repository, such as {example}")
    return path


def _image(node: Node) -> str:
    """Always with its registry, as image names are compared: pytorch/ is docker.io/pytorch/."""
    text = node.text()
    try:
        name = ImageName.parse(f"{text}any" if text.endswith("/") else text)
    except ValueError:
        node.wrong("must be a repository of images, or a prefix that ends in a slash: registry.example/team/")
        return text
    if ":" in text.rpartition("/")[2] or "@" in text:
        node.wrong("must be without a tag: all of a repository's are allowed")
    whole = f"{name.registry}/{name.repository}"
    return whole.removesuffix("any") if text.endswith("/") else whole


def _prefix(node: Node) -> str:
    prefix = node.text()
    if prefix and not prefix.endswith("/"):  # https://x.org/acme would also allow https://x.org/acme-evil
        node.wrong(f"must end with a slash: {prefix}/")
    elif prefix and (trouble := _url_trouble(prefix, ("https",), whole=False)):
        node.wrong(trouble)
    return prefix


def _user(node: Node) -> str:
    user = node.text()
    if user and not MEMBER.fullmatch(user):
        node.wrong(
            f'"{user}" is not a Slack member id such as U012ABC (profile, the three dots, copy member ID)'
        )
    return user


def _launch(node: Node | None) -> Launch:
    keys = node.mapping(("channels", "people", "gpus", "gpus_per_person")) if node else {}
    return Launch(
        channels=tuple(read_channel(item) for item in _list(keys.get("channels"))),
        people=tuple(_user(item) for item in _list(keys.get("people"))),
        gpus=_limit(keys["gpus"], 0, 0) if "gpus" in keys else None,
        gpus_per_person=_limit(keys["gpus_per_person"], 0, 0) if "gpus_per_person" in keys else None,
    )


def _workspace(node: Node) -> str:
    workspace = node.text()
    if workspace and not re.fullmatch(r"[TE][A-Z0-9]{2,}", workspace):
        node.wrong(f'must be the id of a Slack workspace such as T012ABC; got "{workspace}"')
    return workspace


def _namespace(node: Node) -> str:
    name = node.text()
    if name and not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name):
        node.wrong(f'"{name}" is not the name of a namespace: small letters, digits and dashes')
    return name


def _currency(node: Node | None) -> str:
    currency = node.text() if node else "$"
    if node and len(currency) > 8:
        node.wrong("must be a currency's sign or its three letters")
    return currency


def _limits(node: Node | None) -> Limits:
    keys = (
        node.mapping(("gpus_per_trial", "parallel", "trials", "trial_hours", "grace_seconds")) if node else {}
    )
    usual = Limits()
    return Limits(
        gpus_per_trial=_limit(keys.get("gpus_per_trial"), 0, usual.gpus_per_trial),
        parallel=_limit(keys.get("parallel"), 1, usual.parallel),
        trials=_limit(keys.get("trials"), 1, usual.trials),
        trial_hours=read_hours(keys.get("trial_hours"), usual.trial_hours),
        grace_seconds=_limit(keys.get("grace_seconds"), 1, usual.grace_seconds),
    )


def _limit(node: Node | None, least: int, usual: int) -> int:
    if node is None:
        return usual
    before, limit = len(node.complaints), node.whole()
    if limit < least and len(node.complaints) == before:
        node.wrong(f"must be at least {least}")
    return limit


def read_hours(node: Node | None, most: float | None) -> float | None:
    """That a trial may take; `most` of them, also when nothing is said."""
    if node is None:
        return most
    before = len(node.complaints)
    hours = float(node.number())
    if len(node.complaints) > before:
        return most
    if hours < A_MINUTE:
        node.wrong(f"must be at least a minute, {A_MINUTE:.3f}")
    elif hours > LONGEST:
        node.wrong(f"must be at most {LONGEST}; leave it out, and a trial may take as long as it likes")
    elif most and hours > most:
        node.wrong(f"{hours:g} is above this cluster's limit of {most:g} (limits.trial_hours)")
    return hours


def _list(node: Node | None) -> list[Node]:
    return node.items() if node else []


def _url_trouble(url: str, schemes: tuple[str, ...], *, whole: bool = True) -> str | None:
    if "@" in url.partition("://")[2].partition("/")[0]:
        return "a URL may not contain a user or a password"
    match = URL.fullmatch(url)
    if not match or (whole and not match["path"]):
        return f"must be the address of a repository such as {EXAMPLE}"
    if {".", "..", ""} & set(match["path"].removesuffix("/").split("/")) - (
        {""} if not match["path"] else set()
    ):
        return "a path with dots or empty parts is not an address of a repository"
    if match["scheme"] not in schemes:
        return "must begin with https://"
    return None


def _without_password(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//…@", url)
