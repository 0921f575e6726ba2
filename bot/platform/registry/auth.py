"""Credentials for registries: from a dockerconfigjson document as `docker login` and Secrets have it, or by
the identity that a cloud (ECR, ACR, Artifact Registry) gives a pod, without a stored secret, renewed before
they end.

Each cloud's official library is imported only if REGISTRY_IDENTITY names the cloud. The image has them all;
`pip install "sweepbot[aws]"` (azure, google) installs one.
"""

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from k8s.api.errors import SweepbotError

HUB = "docker.io"
HUB_KEY = "index.docker.io"  # Docker writes https://index.docker.io/v1/
Login = tuple[str, str]  # user, and password or token
RENEWED_BEFORE = timedelta(minutes=5)  # the end of a login: a copy of layers can take minutes
EXCHANGE_TIMEOUT = 10  # seconds
AZURE_AUDIENCE = "https://containerregistry.azure.net/.default"
AZURE_USER = "00000000-0000-0000-0000-000000000000"  # says that the password is a token
AZURE_LIFE = timedelta(hours=1)  # of its 3 h
Identity = Callable[[str], tuple[str, str, datetime]]  # host -> user, token, end


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
            user, _, password = b64decode(found["auth"], validate=True).decode().partition(":")
            return user, password or found.get("identitytoken", "")  # Azure's, which takes it as a password
        return found["username"], found["password"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError('must be {"auths": {"HOST": {"auth": …}}}, as docker login writes it') from None


def _place(key: str) -> str:
    """Return HOST or HOST/PREFIX of a key, which can have a scheme and the API's version."""
    place = key.partition("://")[2] or key
    host, _, path = place.rstrip("/").partition("/")
    return host if path in {"", "v1", "v2"} else f"{host}/{path}"


@dataclass
class CloudLogin:
    """Logs in by the cloud's library, and again before a login ends: ECR's after 12 h, others' sooner.

    Args:
        mask: is called with each new login, which is then masked.
    """

    cloud: str
    host: str
    mask: Callable[[Iterable[str]], None]
    _found: tuple[Login, datetime] | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def __call__(self) -> Login:
        """Raise RegistryError."""
        async with self._lock:  # one login for all requests that wait for it
            if not self._found or datetime.now(UTC) > self._found[1] - RENEWED_BEFORE:
                try:
                    user, token, end = await asyncio.to_thread(IDENTITIES[self.cloud], self.host)
                except ImportError as error:
                    fix = f'pip install "sweepbot[{self.cloud}]"'
                    raise RegistryError(f"REGISTRY_IDENTITY={self.cloud} needs {fix} ({error})") from error
                except Exception as error:  # each library has a tree of errors of its own
                    why = f"{type(error).__name__}: {str(error)[:300]}"
                    raise RegistryError(
                        f"no login at {self.host} by REGISTRY_IDENTITY={self.cloud}: {why}"
                    ) from error
                self.mask([token, b64encode(f"{user}:{token}".encode()).decode()])
                self._found = (user, token), end
            return self._found[0]


def _aws(host: str) -> tuple[str, str, datetime]:
    import boto3  # noqa: PLC0415

    # ACCOUNT.dkr.ecr.REGION.amazonaws.com, or with IPv6 ACCOUNT.dkr-ecr.REGION.on.aws
    region = host.replace("dkr-ecr", "dkr.ecr").split(".")[3]
    answer = boto3.client("ecr", region_name=region).get_authorization_token()
    found = answer["authorizationData"][0]
    user, _, token = b64decode(found["authorizationToken"]).decode().partition(":")
    return user, token, found["expiresAt"]


def _google(_host: str) -> tuple[str, str, datetime]:
    import google.auth  # noqa: PLC0415
    from google.auth.transport.requests import Request  # noqa: PLC0415

    found, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
    found.refresh(Request())  # type: ignore[no-untyped-call]
    end = found.expiry or datetime.now(UTC)  # its times have no zone
    return "oauth2accesstoken", str(found.token), end.replace(tzinfo=UTC)


def _azure(host: str) -> tuple[str, str, datetime]:
    import requests  # noqa: PLC0415 - azure.identity's own client
    from azure.identity import DefaultAzureCredential  # noqa: PLC0415

    with DefaultAzureCredential() as identity:
        token = identity.get_token(AZURE_AUDIENCE).token
    form = {"grant_type": "access_token", "service": host, "access_token": token}
    answer = requests.post(f"https://{host}/oauth2/exchange", data=form, timeout=EXCHANGE_TIMEOUT)
    answer.raise_for_status()
    return AZURE_USER, answer.json()["refresh_token"], datetime.now(UTC) + AZURE_LIFE


IDENTITIES: dict[str, Identity] = {"aws": _aws, "azure": _azure, "google": _google}
