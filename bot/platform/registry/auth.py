"""Credentials for registries, from a dockerconfigjson document as `docker login` and Secrets have it."""

import base64
import json

from k8s.api.errors import SweepbotError

HUB = "docker.io"
HUB_KEY = "index.docker.io"  # Docker writes https://index.docker.io/v1/
Login = tuple[str, str]  # user, and password or token


class RegistryError(SweepbotError):
    """The registry is unreachable or returned an error, or its credentials can't be read."""


def login(document: str, registry: str) -> Login | None:
    """Return the login for `registry` (HOST[:PORT][/PREFIX]): the one whose key is the longest part of it.

    Raises ValueError.
    """
    wanted = registry.replace(HUB, HUB_KEY, 1) if registry.partition("/")[0] == HUB else registry
    try:
        auths = {_place(key): entry for key, entry in json.loads(document)["auths"].items()}
        matching = [key for key in auths if f"{wanted}/".startswith(f"{key}/")]
        if not matching or not (found := auths[max(matching, key=len)]):
            return None
        if found.get("auth"):
            user, _, password = base64.b64decode(found["auth"], validate=True).decode().partition(":")
            return user, password or found.get("identitytoken", "")  # Azure's, which takes it as a password
        return found["username"], found["password"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError('must be {"auths": {"HOST": {"auth": …}}}, as docker login writes it') from None


def _place(key: str) -> str:
    """Return HOST or HOST/PREFIX of a key, which can have a scheme and the API's version."""
    place = key.partition("://")[2] or key
    host, _, path = place.rstrip("/").partition("/")
    return host if path in {"", "v1", "v2"} else f"{host}/{path}"
