"""Hosted registries' manners, played in front of Debian's docker-registry: its images, and their doors.

What each one does is from its documentation and from issues that quote its answers (docs/registries.md).
"""

import json
import re
import secrets
from base64 import b64decode
from dataclasses import dataclass, field

from aiohttp import web

from tests.bot.platform.registry.registries import Pusher

PATH = re.compile(r"/v2/(.+?)/(manifests|blobs|tags)/(.*)")
HOUR = 3600
LOGIN_LIFE = 12 * HOUR  # seconds, as of ECR


@dataclass(frozen=True, kw_only=True)
class Manners:
    user: str = "bot"
    realm: str = "/token"  # "": Basic
    life: int = 300  # seconds of a token
    levels: int = 9  # parts of a repository's name
    creates: bool = True  # a repository, at the first push
    mounts: bool = True  # layers of another repository
    deletes: str = "delete"  # the action that a deletion needs; "": none is allowed
    tags_first: bool = False  # an image with a tag can't be deleted


HOSTED = {
    "Docker Hub": Manners(levels=2, deletes=""),
    "GitHub": Manners(mounts=False, deletes=""),
    "GitLab": Manners(realm="/jwt/auth"),
    "Harbor": Manners(realm="/service/token", life=1800),
    "Quay": Manners(realm="/v2/auth", deletes="push"),
    "ECR": Manners(user="AWS", realm="", creates=False, mounts=False, deletes="any"),
    "Artifact Registry": Manners(user="oauth2accesstoken", realm="/v2/token", tags_first=True),
    "ACR": Manners(user="00000000-0000-0000-0000-000000000000", realm="/oauth2/token", life=HOUR),
}


@dataclass
class Front:
    """`password` is the login now; `clock` moves on by itself only in a story."""

    address: str
    manners: Manners
    password: str = "password-1"
    clock: float = 0
    repositories: set[str] = field(default_factory=set)  # created by people
    untagged: set[str] = field(default_factory=set)  # tags deleted without their image
    tagged: dict[str, set[str]] = field(default_factory=dict)  # tags of a digest
    _tokens: dict[str, tuple[str, float]] = field(default_factory=dict)  # scopes, end

    def __post_init__(self):
        self._logins = {self.password: LOGIN_LIFE}

    def renew(self, password):
        """Give out another login; the one before stays valid until its end."""
        self.password = password
        self._logins[password] = self.clock + LOGIN_LIFE

    async def answer(self, request):
        if request.path == self.manners.realm:
            return self._token(request)
        if refusal := self._refusal(request):
            return refusal
        return await self._passed(request)

    def _known(self, request):
        scheme, _, rest = request.headers.get("Authorization", "").partition(" ")
        user, _, password = b64decode(rest).decode().partition(":") if scheme == "Basic" else ("", "", "")
        return user == self.manners.user and self.clock < self._logins.get(password, 0)

    def _token(self, request):
        if not self._known(request):
            return web.json_response({}, status=401)
        token = secrets.token_hex(8)
        self._tokens[token] = " ".join(request.query.getall("scope")), self.clock + self.manners.life
        return web.json_response({"token": token, "expires_in": self.manners.life})

    def _refusal(self, request):
        repository = PATH.fullmatch(request.path)[1]
        deletes = request.method == "DELETE"
        needed = "pull" if request.method in {"GET", "HEAD"} else "push"
        needed = self.manners.deletes if deletes else needed
        if self.manners.realm:
            scopes, end = self._tokens.get(request.headers.get("Authorization", "")[7:], ("", 0))
            granted = {action for s in scopes.split() for action in _actions(s, repository)}
            if self.clock >= end or (needed and needed not in granted):
                realm = f'Bearer realm="http://{request.host}{self.manners.realm}",service="hub"'
                scope = f'scope="repository:{repository}:{needed}"'
                return web.Response(status=401, headers={"WWW-Authenticate": f"{realm},{scope}"})
        elif not self._known(request):
            return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="x",service="ecr"'})
        if deletes and not self.manners.deletes:
            return _error(405, "UNSUPPORTED")
        if repository.count("/") >= self.manners.levels:
            return _error(400, "NAME_INVALID")
        if not self.manners.creates and repository not in self.repositories:
            return _error(404, "NAME_UNKNOWN")
        return None

    async def _passed(self, request):
        repository, what, reference = PATH.fullmatch(request.path).groups()
        push, url = Pusher(self.address), str(request.rel_url).removeprefix("/v2/")
        if request.method == "DELETE" and self.manners.tags_first:
            _, _, body = await push.call("GET", f"{repository}/tags/list")
            if not reference.startswith("sha256:"):
                self.untagged.add(reference)
                return web.Response(status=202)
            if set(json.loads(body)["tags"]) & self.tagged.get(reference, set()) - self.untagged:
                return _error(400, "GOOGLE_MANIFEST_DANGLING_TAG")
        if not self.manners.mounts:
            url = url.partition("?mount=")[0]
        if what == "blobs" and request.method == "PUT" and "Content-Length" not in request.headers:
            return _error(411, "SIZE_INVALID")
        passed = {k: v for k, v in request.headers.items() if k in {"Accept", "Content-Type"}}
        status, headers, answer = await push.call(request.method, url, await request.read() or None, **passed)
        kept = {k: headers[k] for k in ("Content-Type", "Docker-Content-Digest", "Link") if k in headers}
        if what == "manifests" and status == 201:
            self.tagged.setdefault(headers["Docker-Content-Digest"], set()).add(reference)
        if "Location" in headers:
            kept["Location"] = headers["Location"].replace(self.address, request.host)
        if request.method == "HEAD":
            return web.Response(status=status, headers=kept)
        return web.Response(status=status, body=answer, headers=kept)


def _actions(scope, repository):
    _, named, actions = scope.split(":")
    return actions.split(",") if named == repository else []


def _error(status, code):
    return web.json_response({"errors": [{"code": code, "message": "?"}]}, status=status)
