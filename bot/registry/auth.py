"""Credentials for registries, from a dockerconfigjson document as `docker login` and Secrets have it."""

import base64
import json

HUB = "docker.io"
HUB_KEY = "index.docker.io"  # Docker writes https://index.docker.io/v1/


def login(document: str, registry: str) -> tuple[str, str] | None:
    """Return user and password for `registry` (host or host:port). Raises ValueError."""
    try:
        auths = json.loads(document)["auths"]
        found = {_host(key): entry for key, entry in auths.items()}.get(
            HUB_KEY if registry == HUB else registry
        )
        if not found:
            return None
        if "auth" in found:
            user, _, password = base64.b64decode(found["auth"], validate=True).decode().partition(":")
            return user, password
        return found["username"], found["password"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError('must be {"auths": {"HOST": {"auth": …}}}, as docker login writes it') from None


def _host(key: str) -> str:
    return key.partition("://")[2].partition("/")[0] if "://" in key else key.partition("/")[0]
