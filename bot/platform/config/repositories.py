"""Repositories that sweeps can use: `repositories:` and `allowed_urls:` of the configuration, and what is
wrong with a URL.
"""

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from bot.platform.config.rules import Key, Matching, Name
from bot.platform.config.section import Section
from bot.platform.config.value_types import Flag, SecretName, Text, string

URL = re.compile(r"(?P<scheme>https?)://[A-Za-z0-9.-]+(:\d+)?/(?P<path>[A-Za-z0-9._~/-]*)")
NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")
PATH = re.compile(r"(?!.*\.\.)[A-Za-z0-9_.][A-Za-z0-9_./-]*")
EXAMPLE_URL = "https://github.com/acme/digits.git"


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


def bare(url: str) -> str:
    """Return the URL as repositories are compared: without the trailing slash and `.git`."""
    return url.rstrip("/").removesuffix(".git")


def _url(url: str) -> str:
    if error := url_error(url, ("https", "http")):
        raise ValueError(error)
    return url


def _prefix(prefix: str) -> str:
    if error := url_error(prefix if prefix.endswith("/") else f"{prefix}/", ("https",), whole=False):
        raise ValueError(error)
    if not prefix.endswith("/"):  # https://x.org/acme would also allow https://x.org/acme-evil
        raise ValueError(f"must end with a slash: {prefix}/")
    return prefix


Url = Annotated[Text, AfterValidator(_url), WithJsonSchema(string("URL", r"https?://\S+"))]
UrlPrefix = Annotated[Text, AfterValidator(_prefix), WithJsonSchema(string("URL prefix", r"https://\S*/"))]
Path = Annotated[Text, Matching(PATH, "a path inside the repository, such as docker/Dockerfile", "path")]


@dataclass(frozen=True, kw_only=True)
class Repository(Section):
    name: Annotated[str, Name(NAME, "have only lowercase letters, digits, dots, dashes, and underscores")]
    url: Annotated[Url, Key(EXAMPLE_URL)]
    """URL of the git repository: https or http, without credentials."""
    dockerfile: Annotated[Path | None, Key("docker/Dockerfile", "`Dockerfile`, if it exists")] = None
    """Path of the Dockerfile in the repository."""
    requirements: Annotated[Path | None, Key("requirements/train.txt", "found by its name")] = None
    """Path of the requirements file, if the repository has several."""
    install: Annotated[Flag, Key("true")] = False
    """Install the project itself into the image, not only its dependencies."""
    secret: Annotated[SecretName | None, Key("git-vision", "none (public)")] = None
    """Name of the Secret with `username` and `password` for a private repository."""
    push_secret: Annotated[SecretName | None, Key("push-vision", "`IMAGE_PUSH_SECRET`")] = None
    """Name of the dockerconfigjson Secret with which this repository's images are pushed."""
