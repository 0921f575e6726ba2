"""Carrying out a Dockerfile: one method for each instruction, one layer for each that changes files."""

import signal
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from glob import glob
from pathlib import Path
from shutil import copy2, copytree

from local import images
from local.images import Image, Reference
from local.kaniko import dockerfile
from local.kaniko.dockerfile import Instruction
from local.kaniko.image import Draft, Layer, pack, stats
from local.kaniko.options import Options, Stop
from local.registry import DOCKER, OCI, digest_of

SECONDS = {"h": 3600, "m": 60, "s": 1}


class Build:
    """The image grows in `draft`, its files in `folder`/rootfs. `log` takes a line."""

    def __init__(self, options: Options, log: Callable[[str], None], context: Path, folder: Path) -> None:
        self.options, self.log, self.context = options, log, context
        self.folder, self.rootfs = folder, folder / "rootfs"
        self.rootfs.mkdir()
        now = datetime(1, 1, 1, tzinfo=UTC) if options.on("reproducible") else datetime.now(UTC)
        kind = OCI if options.one("image-format") == "oci" else DOCKER
        self.draft = Draft(kind, now.isoformat(timespec="seconds").replace("+00:00", "Z"))
        self.config = self.draft.config
        self.env: dict[str, str] = {}
        self.args: dict[str, str] = {}
        self.has_cmd = False
        self.key = ""
        self.cache_may_hit = options.on("cache")

    @property
    def variables(self) -> dict[str, str]:
        return self.args | self.env

    @property
    def workdir(self) -> Path:
        return self.rootfs.joinpath(self.config.get("WorkingDir", "/").lstrip("/"))

    def run(self, instructions: list[Instruction]) -> Draft:
        """Raises Stop, DockerfileError."""
        for step in instructions:
            self.log(str(step))
            self.key = digest_of(f"{self.key} {step}".encode())
            before = len(self.draft.layers)
            getattr(self, f"do_{step.name.lower()}")(step)
            entry = {"created": self.draft.created, "created_by": str(step), "author": "kaniko"}
            empty = len(self.draft.layers) == before and step.name != "FROM"
            self.draft.history += (
                [entry | {"empty_layer": True}] if empty else [entry] * (step.name != "FROM")
            )
        labels = dict(label.split("=", 1) for label in self.options.all("label"))
        if labels:
            self.config["Labels"] = (self.config.get("Labels") or {}) | labels
        return self.draft

    def do_from(self, step: Instruction) -> None:
        name = dockerfile.expand(step.text, self.args).split()[0]
        self.args = {}
        if name == "scratch":
            self.log("No base image, nothing to extract")
            return
        self.log(f"Retrieving image manifest {name}")
        image = self._pull(name)
        self.config |= image.config
        self.env = dict(pair.split("=", 1) for pair in self.config.get("Env") or [])
        self.draft.layers, self.draft.history = _layers(image, name), image.document.get("history", [])
        self.key = image.digest

    def _pull(self, name: str) -> Image:
        reference = Reference.parse(name)
        if reference.host != "docker.io":
            self.options.check_http(reference.host)
        try:
            return images.pull(name, self.rootfs, reference.host)
        except images.PullError as error:
            host = reference.host.replace("docker.io", "index.docker.io")
            place = f"GET https://{host}/v2/{reference.repository}/manifests/{reference.wanted}"
            unknown = error.status == 404 or reference.host == "docker.io"
            said = f"MANIFEST_UNKNOWN: manifest unknown; unknown tag={reference.wanted}"
            raise Stop(f"{place}: {said if unknown else error}") from error

    def do_arg(self, step: Instruction) -> None:
        name, _, default = step.text.partition("=")
        given = dict(arg.split("=", 1) for arg in self.options.all("build-arg") if "=" in arg)
        self.args[name] = given.get(name, dockerfile.expand(default.strip("\"'"), self.variables))

    def do_env(self, step: Instruction) -> None:
        self.env |= dockerfile.pairs(step.text, self.variables)
        self.config["Env"] = [f"{key}={value}" for key, value in self.env.items()]

    def do_label(self, step: Instruction) -> None:
        self.config["Labels"] = (self.config.get("Labels") or {}) | dockerfile.pairs(
            step.text, self.variables
        )

    def do_workdir(self, step: Instruction) -> None:
        above = self.config.get("WorkingDir") or "/"
        self.config["WorkingDir"] = str(Path(above, dockerfile.expand(step.text, self.variables)))

    def do_user(self, step: Instruction) -> None:
        self.config["User"] = dockerfile.expand(step.text, self.variables)

    def do_expose(self, step: Instruction) -> None:
        ports = dockerfile.expand(step.text, self.variables).split()
        self.config["ExposedPorts"] = {port if "/" in port else f"{port}/tcp": {} for port in ports}

    def do_cmd(self, step: Instruction) -> None:
        self.config["Cmd"] = step.command
        self.has_cmd = True

    def do_entrypoint(self, step: Instruction) -> None:
        """A Cmd of the base belonged to the base's Entrypoint."""
        self.config["Entrypoint"] = step.command
        if not self.has_cmd:
            self.config.pop("Cmd", None)

    def do_copy(self, step: Instruction) -> None:
        words = step.words or dockerfile.expand(step.text, self.variables).split()
        while words[0].startswith("--"):
            if not words[0].startswith(("--chown=", "--chmod=")):
                raise Stop(f"a local build has no COPY {words[0].partition('=')[0]}")
            words.pop(0)
        *sources, target = words
        place = self.rootfs / target.lstrip("/") if target.startswith("/") else self.workdir / target
        with self._layer():
            for source in sources:
                self._copy(source, place, inside=len(sources) > 1 or target.endswith(("/", ".")))

    def _copy(self, source: str, place: Path, *, inside: bool) -> None:
        found = [Path(path) for path in sorted(glob(str(self.context / source.lstrip("/"))))]  # noqa: PTH207
        if not found:
            there = f"/kaniko/buildcontext/{source.lstrip('/')}"
            why = f"failed to get fileinfo for {there}: lstat {there}: no such file or directory"
            raise Stop(f"failed to optimize instructions: failed to get files used from context: {why}")
        for path in found:
            self.key = digest_of(f"{self.key} {_content(path)}".encode())
            if path.is_dir():
                copytree(path, place, symlinks=True, dirs_exist_ok=True)
                continue
            target = place / path.name if inside or place.is_dir() else place
            target.parent.mkdir(parents=True, exist_ok=True)
            copy2(path, target, follow_symlinks=False)

    def do_run(self, step: Instruction) -> None:
        if step.text.startswith("--"):
            raise Stop(f"a local build has no RUN {step.text.partition('=')[0]}")
        self.key = digest_of(repr((self.key, sorted(self.variables.items()))).encode())
        if self.cache_may_hit and self._cached(step):
            return
        self.cache_may_hit = False
        self.log(f"Running: [{' '.join(step.command)}]")
        before = len(self.draft.layers)
        with self._layer():
            self.workdir.mkdir(parents=True, exist_ok=True)
            command = [images.localise(word, self.rootfs, {}) for word in step.command]
            env = images.environment(self.rootfs, self.variables, {})
            code = subprocess.run(command, cwd=self.workdir, env=env, check=False).returncode
        if code:
            why = f"exit status {code}" if code > 0 else f"signal: {signal.strsignal(-code)}".lower()
            raise Stop(f"failed to execute command: waiting for process to exit: {why}", max(code, 1))
        if self.options.on("cache") and not self.options.on("no-push-cache"):
            name = self._cache_name()
            self.log(f"Pushing layer {name} to cache now")
            replace(self.draft, layers=self.draft.layers[before:], history=[]).push(Reference.parse(name))

    def _cache_name(self) -> str:
        return f"{self.options.cache_repo}:{self.key.removeprefix('sha256:')}"

    def _cached(self, step: Instruction) -> bool:
        """Kaniko's cache: for each key an image of that layer, good for --cache-ttl since it was made."""
        name = self._cache_name()
        host = Reference.parse(name).host
        self.log(f"Checking for cached layer {name}...")
        try:
            with tempfile.TemporaryDirectory(dir=self.folder) as probe:
                image = images.pull(name, Path(probe), host)
        except images.PullError:
            self.log(f"No cached layer found for cmd {step}")
            return False
        ttl = self.options.one("cache-ttl", "336h")
        age = datetime.now(UTC) - datetime.fromisoformat(image.document["created"])
        if age.total_seconds() > int(ttl[:-1]) * SECONDS[ttl[-1]]:
            self.log(f"Cache entry expired: {name}")
            return False
        self.log(f"Using caching version of cmd: {step}")
        images.pull(name, self.rootfs, host)
        self.draft.layers += _layers(image, name)
        return True

    @contextmanager
    def _layer(self) -> Iterator[None]:
        """What the block changes below rootfs becomes a layer, as with --use-new-run."""
        before = stats(self.rootfs)
        yield
        self.log("Taking snapshot of files...")
        changed = sorted(path for path, stat in stats(self.rootfs).items() if before.get(path) != stat)
        if changed:
            target = self.folder / f"{len(self.draft.layers)}.tar.gz"
            self.draft.layers.append(pack(self.rootfs, changed, target, self._owned))

    def _owned(self, info: tarfile.TarInfo) -> tarfile.TarInfo:
        """Everything is root's; --reproducible also drops the times."""
        info.uid = info.gid = 0
        info.uname = info.gname = "root"
        info.mtime = 0 if self.options.on("reproducible") else int(info.mtime)
        return info


def _content(source: Path) -> list[tuple[str, int, str]]:
    """What decides whether a COPY is the same again: names, modes and bytes, not times."""
    files = sorted(path for path in (source, *source.rglob("*")) if path.is_file())
    return [(str(p.relative_to(source)), p.stat().st_mode, digest_of(p.read_bytes())) for p in files]


def _layers(image: Image, name: str) -> list[Layer]:
    diff_ids = image.document.get("rootfs", {}).get("diff_ids", [])
    pairs = zip(image.layers, diff_ids, strict=True)
    return [Layer(one["digest"], diff_id, one["size"], Reference.parse(name)) for one, diff_id in pairs]
