"""Repositories that sweeps can use: `repositories:` and `allowed_urls:` of the configuration."""

import re
from dataclasses import dataclass

from bot.config.keys import OBJECT_NAME
from bot.config.policy_keys import EXAMPLE_URL, REPOSITORY_KEYS, REPOSITORY_NAME, REPOSITORY_PATH
from bot.config.yaml_reader import Node, entries

URL = re.compile(r"(?P<scheme>https?)://[A-Za-z0-9.-]+(:\d+)?/(?P<path>[A-Za-z0-9._~/-]*)")


@dataclass(frozen=True, kw_only=True)
class Repository:
    name: str
    url: str
    dockerfile: str | None = None  # path in the repository; None: `Dockerfile`, if it exists
    requirements: str | None = None  # path in the repository; None: found by its name
    install: bool = False  # whether the image installs the project itself
    secret: str | None = None  # name of the Secret with git's username and password or token
    push_secret: str | None = None  # name of a dockerconfigjson Secret for its images; None: the default one


def url_error(url: str, schemes: tuple[str, ...], *, whole: bool = True) -> str | None:
    """Return why it isn't a repository's URL, or with `whole=False` a prefix of some; None if it is."""
    if "@" in url.partition("://")[2].partition("/")[0]:
        return "must not contain a user or a password"
    match = URL.fullmatch(url)
    if not match or (whole and not match["path"]):
        return f"must be the URL of a repository, such as {EXAMPLE_URL}"
    if {".", "..", ""} & set(match["path"].removesuffix("/").split("/")) - (
        {""} if not match["path"] else set()
    ):
        return "must be a URL without empty, `.`, or `..` path segments"
    if match["scheme"] not in schemes:
        return "must start with https://"
    return None


def is_repository_url(url: str) -> bool:
    """Return whether it is an https or http URL of a repository."""
    return url_error(url, ("https", "http")) is None


def bare(url: str) -> str:
    """Return the URL as repositories are compared: without the trailing slash and `.git`."""
    return url.rstrip("/").removesuffix(".git")


def read_repositories(node: Node) -> tuple[Repository, ...]:
    """Return the configured repositories in their order; the first is the default."""
    found = [_repository(name, each) for name, each in node.mapping().items()]
    if node.value in ({}, None):
        node.error("must have at least one repository")
    return tuple(found)


def _repository(name: str, node: Node) -> Repository:
    if not REPOSITORY_NAME.fullmatch(name):
        node.error(
            f'name must have only lowercase letters, digits, dots, dashes, and underscores; got "{name}"'
        )
    keys = node.mapping(REPOSITORY_KEYS)
    url = keys["url"].text() if "url" in keys else ""
    if url and (error := url_error(url, ("https", "http"))):
        keys["url"].error(error)
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
    if node and name and not OBJECT_NAME.fullmatch(name):
        node.error("must be the name of a Kubernetes Secret, not its contents")
    return name


def _path(node: Node | None, example: str) -> str | None:
    path = node.text() if node else None
    if node and path and not REPOSITORY_PATH.fullmatch(path):
        node.error(f"must be a path inside the repository, such as {example}")
    return path


def read_prefixes(node: Node | None) -> tuple[str, ...]:
    """Return `allowed_urls:`, each of which ends in a slash."""
    return tuple(_prefix(item) for item in entries(node))


def _prefix(node: Node) -> str:
    prefix = node.text()
    if prefix and not prefix.endswith("/"):  # https://x.org/acme would also allow https://x.org/acme-evil
        node.error(f"must end with a slash: {prefix}/")
    elif prefix and (error := url_error(prefix, ("https",), whole=False)):
        node.error(error)
    return prefix
