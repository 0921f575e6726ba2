"""Build a Dockerfile: one method per instruction, and one layer per instruction that changes files."""

import signal
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from glob import glob
from pathlib import Path
from shutil import copy2, copytree

from local import image_pull
from local.image_pull import Image, Reference
from local.kaniko import dockerfile
from local.kaniko.dockerfile import Instruction
from local.kaniko.image import Draft, Layer, pack, stats
from local.kaniko.options import Options, Stop


class Build:
    """Builds the image in `draft` and its files in `folder`/rootfs; `log` takes a line."""

    def __init__(self, options: Options, log: Callable[[str], None], context: Path, folder: Path) -> None:
        self.options, self.log, self.context = options, log, context
        self.folder, self.rootfs = folder, folder / "rootfs"
        self.rootfs.mkdir()
        self.reproducible = options.one("reproducible") == "true"
        now = datetime(1, 1, 1, tzinfo=UTC) if self.reproducible else datetime.now(UTC)
        self.draft = Draft(now.isoformat(timespec="seconds").replace("+00:00", "Z"))
        self.config = self.draft.config
        self.env: dict[str, str] = {}
        self.has_cmd = False

    @property
    def workdir(self) -> Path:
        return self.rootfs.joinpath(self.config.get("WorkingDir", "/").lstrip("/"))

    def run(self, instructions: list[Instruction]) -> Draft:
        """Raises Stop, DockerfileError."""
        for step in instructions:
            self.log(str(step))
            getattr(self, f"do_{step.name.lower()}")(step)
        return self.draft

    def do_from(self, step: Instruction) -> None:
        name = step.text.split()[0]
        if name == "scratch":
            self.log("No base image, nothing to extract")
            return
        self.log(f"Retrieving image manifest {name}")
        image = self._pull(name)
        self.config |= image.config
        self.env = dict(pair.split("=", 1) for pair in self.config.get("Env") or [])
        diff_ids = image.document.get("rootfs", {}).get("diff_ids", [])
        for one, diff_id in zip(image.layers, diff_ids, strict=True):
            self.draft.layers.append(Layer(one["digest"], diff_id, one["size"], Reference.parse(name)))

    def _pull(self, name: str) -> Image:
        reference = Reference.parse(name)
        if reference.host != "docker.io":
            self.options.check_http(reference.host)
        try:
            return image_pull.pull(name, self.rootfs, reference.host)
        except image_pull.PullError as error:
            host = reference.host.replace("docker.io", "index.docker.io")
            place = f"GET https://{host}/v2/{reference.repository}/manifests/{reference.wanted}"
            unknown = error.status == 404 or reference.host == "docker.io"
            message = f"MANIFEST_UNKNOWN: manifest unknown; unknown tag={reference.wanted}"
            raise Stop(f"{place}: {message if unknown else error}") from error

    def do_env(self, step: Instruction) -> None:
        self.env |= dockerfile.pairs(step.text, self.env)
        self.config["Env"] = [f"{key}={value}" for key, value in self.env.items()]

    def do_workdir(self, step: Instruction) -> None:
        above = self.config.get("WorkingDir") or "/"
        self.config["WorkingDir"] = str(Path(above, dockerfile.expand(step.text, self.env)))

    def do_cmd(self, step: Instruction) -> None:
        self.config["Cmd"] = step.command
        self.has_cmd = True

    def do_entrypoint(self, step: Instruction) -> None:
        """Set Entrypoint, and remove Cmd, which belongs to the base's Entrypoint."""
        self.config["Entrypoint"] = step.command
        if not self.has_cmd:
            self.config.pop("Cmd", None)

    def do_copy(self, step: Instruction) -> None:
        *sources, target = step.words or dockerfile.expand(step.text, self.env).split()
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
            if path.is_dir():
                copytree(path, place, symlinks=True, dirs_exist_ok=True)
                continue
            target = place / path.name if inside or place.is_dir() else place
            target.parent.mkdir(parents=True, exist_ok=True)
            copy2(path, target, follow_symlinks=False)

    def do_run(self, step: Instruction) -> None:
        self.log(f"Running: [{' '.join(step.command)}]")
        with self._layer():
            self.workdir.mkdir(parents=True, exist_ok=True)
            command = [image_pull.localise(word, self.rootfs, {}) for word in step.command]
            env = image_pull.environment(self.rootfs, self.env, {})
            env.pop("UV_NO_CACHE", None)  # this machine's cache is outside the image anyway
            code = subprocess.run(command, cwd=self.workdir, env=env, check=False).returncode
        if code:
            why = f"exit status {code}" if code > 0 else f"signal: {signal.strsignal(-code)}".lower()
            raise Stop(f"failed to execute command: waiting for process to exit: {why}", max(code, 1))

    @contextmanager
    def _layer(self) -> Iterator[None]:
        """Add the changes that the body makes below rootfs as a layer, as with --use-new-run."""
        before = stats(self.rootfs)
        yield
        self.log("Taking snapshot of files...")
        changed = sorted(path for path, stat in stats(self.rootfs).items() if before.get(path) != stat)
        if changed:
            target = self.folder / f"{len(self.draft.layers)}.tar.gz"
            self.draft.layers.append(pack(self.rootfs, changed, target, self._owned))

    def _owned(self, info: tarfile.TarInfo) -> tarfile.TarInfo:
        """Set the owner to root, and with --reproducible the times to 0."""
        info.uid = info.gid = 0
        info.uname = info.gname = "root"
        info.mtime = 0 if self.reproducible else int(info.mtime)
        return info
