"""The one file of people and policy (SWEEPBOT_CONFIG): which repositories, who may more, how much at most."""

import re
from dataclasses import dataclass

from bot.document import Node, read
from bot.hints import listed
from bot.models import UserError
from bot.teams import MEMBER, Price, Team, read_prices, read_teams

KEYS = ("repositories", "allowed_urls", "admins", "limits", "teams", "prices")
URL = re.compile(r"(?P<scheme>https?)://[A-Za-z0-9.-]+(:\d+)?/(?P<path>[A-Za-z0-9._~/-]*)")
EXAMPLE = "https://github.com/acme/digits.git"


@dataclass(frozen=True, kw_only=True)
class Repository:
    name: str
    url: str
    dockerfile: str = "Dockerfile"  # from the repository's root


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one sweep may ask for at most."""

    gpus_per_trial: int = 8
    parallel: int = 16
    trials: int = 500


@dataclass(frozen=True, kw_only=True)
class Config:
    repositories: tuple[Repository, ...]  # the first is the default
    allowed_urls: tuple[str, ...] = ()  # prefixes, each ending in a slash
    admins: tuple[str, ...] = ()  # Slack user ids
    limits: Limits = Limits()
    teams: tuple[Team, ...] = ()
    prices: tuple[Price, ...] = ()  # the first that fits a model is its price


def parse_config(text: str, file: str) -> Config:
    """Raises UserError with all that is wrong, each with its line."""
    root = read(text, file)
    keys = root.mapping(KEYS, must=("repositories",))
    config = Config(
        repositories=tuple(_repositories(keys["repositories"])) if "repositories" in keys else (),
        allowed_urls=tuple(_prefix(item) for item in _list(keys.get("allowed_urls"))),
        admins=tuple(_user(item) for item in _list(keys.get("admins"))),
        limits=_limits(keys.get("limits")),
        teams=read_teams(keys.get("teams")),
        prices=read_prices(keys.get("prices")),
    )
    root.check()
    return config


def repository(asked: str | None, config: Config) -> Repository:
    """What a request names: a configured repository (None: the default), or a URL under an allowed prefix."""
    for known in config.repositories:
        if asked in {None, known.name} or _bare(str(asked)) == _bare(known.url):
            return known
    names = listed([f"`{known.name}`" for known in config.repositories])
    if asked is None or "/" not in asked:
        raise UserError(f"repo={asked} is not a repository I know; there is {names}.")
    if trouble := _url_trouble(asked, ("https",)):
        raise UserError(f"repo={_without_password(asked)}: {trouble}. The configured ones are {names}.")
    if not asked.startswith(config.allowed_urls):
        under = f", and any URL under {listed(config.allowed_urls, 'or')}" if config.allowed_urls else ""
        raise UserError(f"repo={asked} is not allowed here; there is {names}{under}.")
    return Repository(name=_bare(asked).split("/", 3)[3].replace("/", "-"), url=asked)


def _bare(url: str) -> str:
    return url.rstrip("/").removesuffix(".git")


def _repositories(node: Node) -> list[Repository]:
    found = [_repository(name, each) for name, each in node.mapping().items()]
    if node.value in ({}, None):
        node.wrong("at least one repository is needed")
    return found


def _repository(name: str, node: Node) -> Repository:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_.-]*", name):
        node.wrong(f'"{name}" is not a name: use small letters, digits, dots, dashes and underscores')
    keys = node.mapping(("url", "dockerfile"), must=("url",))
    url = keys["url"].text() if "url" in keys else ""
    if url and (trouble := _url_trouble(url, ("https", "http"))):
        keys["url"].wrong(trouble)
    dockerfile = keys["dockerfile"].text() if "dockerfile" in keys else "Dockerfile"
    if dockerfile and not re.fullmatch(r"(?!.*\.\.)[A-Za-z0-9_.][A-Za-z0-9_./-]*", dockerfile):
        keys["dockerfile"].wrong("must be a path inside the repository, such as docker/Dockerfile")
    return Repository(name=name, url=url, dockerfile=dockerfile)


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


def _limits(node: Node | None) -> Limits:
    keys = node.mapping(("gpus_per_trial", "parallel", "trials")) if node else {}
    usual = Limits()
    return Limits(
        gpus_per_trial=_limit(keys.get("gpus_per_trial"), 0, usual.gpus_per_trial),
        parallel=_limit(keys.get("parallel"), 1, usual.parallel),
        trials=_limit(keys.get("trials"), 1, usual.trials),
    )


def _limit(node: Node | None, least: int, usual: int) -> int:
    if node is None:
        return usual
    if (limit := node.whole()) < least:
        node.wrong(f"must be at least {least}")
    return limit


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
