"""Pull images as containerd and Kaniko's FROM do, into directories instead of namespaces.

There is no chroot on a laptop: an image's folder takes the place of "/" by rewriting paths (`localise`).
"""

import fcntl
import http.client
import json
import os
import re
import sys
import sysconfig
import tarfile
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local.image_formats import DOCKER, OCI, digest_of

ACCEPT = f"{OCI}, {DOCKER}"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
SITE_PACKAGES = f"usr/local/lib/python{PYTHON}/site-packages"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Base images of docker.io that this machine's own Python replaces; their folder is empty.
KNOWN_BASES = {f"python:{v}{end}" for v in ("3", PYTHON) for end in ("", "-slim", "-slim-bookworm")}
# Variables of this machine that a process of an image gets: the sources of packages.
INHERITED = re.compile(r"(?i:HOME|LANG|TMPDIR|TZ|SSL_CERT_.*|(REQUESTS|CURL)_CA_BUNDLE|(PIP|UV)_.*|.*_proxy)")
ABSOLUTE = re.compile(r"(?<![\w./-])/[\w.@+-]+(?:/[\w.@+-]+)*")
TRIAL = {"SWEEPBOT_COLLECTOR_SECONDS": "2"}  # as where the collector is quick: the local one is there at once
OWN_FOLDERS = {"app", "opt", "srv"}


class PullError(Exception):
    """The message is containerd's; Kaniko has its own for `status` (HTTP, or 0 without a response)."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Reference:
    """`host/repository:tag@digest`; the default host is docker.io."""

    host: str
    repository: str
    tag: str
    digest: str

    @classmethod
    def parse(cls, text: str) -> "Reference":
        """Parse an image name. Raises ValueError."""
        match = re.fullmatch(r"([a-z0-9._/:-]*?)(?::([\w][\w.-]{0,127}))?(?:@(sha256:[0-9a-f]{64}))?", text)
        if not match or not match[1]:
            raise ValueError("invalid reference format")
        first, _, rest = match[1].partition("/")
        if not rest or not re.search(r"[.:]|^localhost$", first):
            first, rest = "docker.io", match[1]
        if first == "docker.io":
            rest = rest.removeprefix("library/")
        return cls(first, rest, match[2] or ("" if match[3] else "latest"), match[3] or "")

    @property
    def is_known_base(self) -> bool:
        return self.host == "docker.io" and f"{self.repository}:{self.tag}" in KNOWN_BASES

    @property
    def wanted(self) -> str:
        return self.digest or self.tag


@dataclass(frozen=True)
class Image:
    """A pulled image: its digest, config, and layers."""

    digest: str = ""
    document: dict[str, Any] = field(default_factory=dict)
    layers: list[dict[str, Any]] = field(default_factory=list)

    @property
    def config(self) -> dict[str, Any]:
        """Return the runtime config: Env, WorkingDir, Entrypoint, Cmd, and so on."""
        return dict(self.document.get("config") or {})


@contextmanager
def registry_request(
    host: str, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
) -> Iterator[http.client.HTTPResponse]:
    """Send one request to a registry over plain HTTP; the body can be an open file. Raises OSError."""
    connection = http.client.HTTPConnection(host, timeout=60)
    try:
        connection.request(method, path, body, headers or {})
        yield connection.getresponse()
    finally:
        connection.close()


def pull(name: str, rootfs: Path, registry: str) -> Image:
    """Unpack image `name` into `rootfs`; only the host `registry` exists. Raises ValueError, PullError."""
    reference = Reference.parse(name)
    rootfs.mkdir(parents=True, exist_ok=True)
    if reference.is_known_base:
        settings = {"Env": [f"PATH={SYSTEM_PATH}"], "Cmd": ["python3"]}
        return Image(digest_of(name.encode()), {"config": settings})
    if reference.host != registry:
        host = reference.host.replace("docker.io", "registry-1.docker.io")
        raise _unresolved(name, _no_answer(host, f"lookup {host}: no such host"))
    manifest, digest = _manifest(name, reference)
    config = f"/v2/{reference.repository}/blobs/{manifest['config']['digest']}"
    with registry_request(reference.host, "GET", config) as answer:
        document = json.loads(answer.read())
    for layer in manifest["layers"]:
        _unpack(reference, layer["digest"], rootfs)
    return Image(digest, document, manifest["layers"])


def _manifest(name: str, reference: Reference) -> tuple[dict[str, Any], str]:
    path = f"/v2/{reference.repository}/manifests/{reference.wanted}"
    try:
        with registry_request(reference.host, "GET", path, headers={"Accept": ACCEPT}) as answer:
            status, body = answer.status, answer.read()
    except OSError as error:
        why = f"{reference.host}: connect: {(error.strerror or str(error)).lower()}"
        raise _unresolved(name, _no_answer(reference.host, why)) from error
    if status == 404:
        raise _unresolved(name, f"{name}: not found", status)
    if status != 200:
        raise _unresolved(name, f"unexpected status from HEAD request: {status}", status)
    return json.loads(body), digest_of(body)


def _no_answer(host: str, why: str) -> str:
    return f'failed to do request: Head "https://{host}/v2/": dial tcp: {why}'


def _unresolved(name: str, why: str, status: int = 0) -> PullError:
    code = "NotFound" if status == 404 else "Unknown"
    text = f'failed to pull and unpack image "{name}": failed to resolve reference "{name}": {why}'
    return PullError(f"rpc error: code = {code} desc = {text}", status)


def _unpack(reference: Reference, digest: str, rootfs: Path) -> None:
    """Extract with the "tar" filter; "data" would reject a virtual environment's link to its Python."""
    path = f"/v2/{reference.repository}/blobs/{digest}"
    with (
        registry_request(reference.host, "GET", path) as answer,
        tarfile.open(fileobj=answer, mode="r|*") as tar,
    ):
        tar.extractall(rootfs, filter="tar")


def localise(text: str, rootfs: Path, mounts: Mapping[str, Path]) -> str:
    """Replace a container's absolute paths by real ones: volumes first, then the image's."""

    def real(match: re.Match[str]) -> str:
        path = match[0]
        for mount in sorted(mounts, key=len, reverse=True):
            if path == mount or path.startswith(f"{mount}/"):
                return f"{mounts[mount]}{path[len(mount) :]}"
        top = path.split("/")[1]
        own = top in OWN_FOLDERS or (rootfs / path[1:]).exists()
        return f"{rootfs}{path}" if own else path

    return ABSOLUTE.sub(real, text)


def inherited() -> dict[str, str]:
    """Return the environment without proxies: all services are on this machine."""
    here = dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1")
    return {key: value for key, value in os.environ.items() if INHERITED.fullmatch(key)} | here


def environment(rootfs: Path, given: Mapping[str, str], mounts: Mapping[str, Path]) -> dict[str, str]:
    """Return a container's variables: PATH has the image's programs first, then this machine's Python."""
    result = inherited() | TRIAL | {key: localise(value, rootfs, mounts) for key, value in given.items()}
    path = localise(given.get("PATH", SYSTEM_PATH), rootfs, mounts).split(":")
    own = [part for part in path if part.startswith(str(rootfs))]
    machine = [str(image_python().parent), str(Path(sys.executable).parent)]
    result["PATH"] = ":".join(dict.fromkeys([*own, *machine, *path, *SYSTEM_PATH.split(":")]))
    packages = [str(rootfs / SITE_PACKAGES), result.get("PYTHONPATH", "")]
    return result | {"PYTHONPATH": ":".join(filter(None, packages)), "PIP_PREFIX": str(rootfs / "usr/local")}


def image_python() -> Path:
    """Return a Python with this environment's packages, which `pip install x==other` in a Dockerfile keeps.

    pip never uninstalls packages outside its own environment.
    """
    home = Path(sys.prefix, "share", "image-python").resolve()  # a link to this environment can be deleted
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # containers can start at the same time
        if not (home / "ready").exists():
            _make_python(home)
            (home / "ready").touch()
    return home / "bin" / "python"


def _make_python(home: Path) -> None:
    venv.create(home, symlinks=True)
    packages = str(Path(sysconfig.get_path("purelib")).resolve())
    (home / f"lib/python{PYTHON}/site-packages/machine.pth").write_text(
        f"import site; site.addsitedir({packages!r})\n"
    )
    pip = f"#!{home}/bin/python\nimport sys\nfrom pip._internal.cli.main import main\nsys.exit(main())\n"
    for name in ("pip", "pip3"):
        (home / "bin" / name).write_text(pip)
        (home / "bin" / name).chmod(0o755)
