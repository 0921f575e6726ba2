"""Run one container, with the states and messages of the real kubelet."""

import asyncio
import os
import shutil
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from local import image_pull
from local.image_pull import Image, PullError, Reference
from local.kubernetes.apiserver.kinds import Object, timestamp
from local.kubernetes.apiserver.store import Store
from local.kubernetes.node import container_inputs
from local.kubernetes.node.container_inputs import NotReady

Log = Callable[[str], None]
Exits = Mapping[str, asyncio.Future[int]]
Builtin = Callable[[Object, Object, Mapping[str, Path], Log, Exits], Awaitable[int]]

SWEEPBOT = "sweepbot"  # how the repository of the product's image ends
KANIKO = ("kaniko", "kaniko-project/executor")  # how the repository of the executor's image ends
PROJECT = Path(image_pull.__file__).parents[1]
RUNC = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: "
    "runc create failed: unable to start container process: error during container init: "
)
NEVER = "1970-01-01T00:00:00Z"
LONGEST_BACK_OFF = 300.0  # seconds
MESSAGE_BYTES = 4096


@dataclass(frozen=True)
class Node:
    """A container's environment. `builtins` run in-process, selected by part of the image's name."""

    store: Store
    registry: str
    builtins: Mapping[str, Builtin]
    retry: float  # seconds before the first second try


class StartError(Exception):
    """runc's error for a command that can't be started."""


class Container:
    """Call `run` once. `changed` is called after each new `state`; `event` takes type, reason, message."""

    def __init__(
        self,
        node: Node,
        pod: Object,
        spec: Object,
        folder: Path,
        changed: Callable[[], None],
        event: Callable[[str, str, str], None],
        before: "Container | None" = None,
    ) -> None:
        self.node, self.pod, self.spec, self.folder = node, pod, spec, folder
        self.changed, self.event = changed, event
        self.name: str = spec["name"]
        self.image: str = spec["image"]
        self.state: Object = {"waiting": {"reason": "ContainerCreating"}}
        self.restarts: int = before.restarts + 1 if before else 0
        self.last_state: Object = before.state if before else {}
        self.image_id = ""
        self.tried = asyncio.Event()  # it has started, or failed to for the first time
        self.exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.process: asyncio.subprocess.Process | None = None
        self.log, self.termination_log = folder / f"{self.name}.log", folder / f"{self.name}.message"
        self.log.write_bytes(b"")  # only the newest run's

    @property
    def status(self) -> Object:
        """Return its containerStatus."""
        running = "running" in self.state
        name = {"name": self.name, "image": self.image, "imageID": self.image_id}
        last = {"lastState": self.last_state, "restartCount": self.restarts}
        return {**name, "state": self.state, "ready": running, **last}

    async def run(self, volumes: Mapping[str, Path], siblings: Exits) -> None:
        builtin = next((run for part, run in self.node.builtins.items() if part in self.image), None)
        try:
            image = Image() if builtin or self._is_here else await self._pull()
            known = await self._variables(image)
            if builtin:
                started_at = self._begin()
                self._end(await builtin(self.pod, self.spec, volumes, self._write, siblings), started_at)
            else:
                await self._run_process(
                    image, known, container_inputs.mounts(self.spec, volumes, self.termination_log)
                )
        except StartError as error:
            self.event("Warning", "Failed", f"Error: {RUNC}{error}")
            self._end(128, NEVER, "StartError", f"{RUNC}{error}")
        except asyncio.CancelledError:
            text = "The container could not be located when the pod was terminated"
            self._end(137, NEVER, "ContainerStatusUnknown", text)

    @property
    def started(self) -> bool:
        return "running" in self.state or self.state.get("terminated", {}).get("startedAt", NEVER) != NEVER

    def terminate(self) -> None:
        """Send SIGTERM only to the first process, as containerd does: a shell must forward it."""
        if self.process:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to all processes of the container."""
        if self.process:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    @property
    def is_sidecar(self) -> bool:
        """Whether it is an init container that stays."""
        return bool(self.spec.get("restartPolicy") == "Always")

    async def has_started(self, volumes: Mapping[str, Path]) -> bool:
        """Return whether it runs, and its startup probe succeeds, if it has one."""
        if "running" not in self.state:
            return False
        words = self.spec.get("startupProbe", {}).get("exec", {}).get("command", [])
        mounts = container_inputs.mounts(self.spec, volumes, self.termination_log)
        command = [image_pull.localise(word, self.folder / self.name, mounts) for word in words]
        if not command:
            return True
        return not await (await asyncio.create_subprocess_exec(*command)).wait()

    @property
    def _is_kaniko(self) -> bool:
        return self._is_of(KANIKO)

    @property
    def _is_here(self) -> bool:
        """Whether the image's program is in this repository."""
        return self._is_of((*KANIKO, SWEEPBOT))

    def _is_of(self, repositories: tuple[str, ...]) -> bool:
        with suppress(ValueError):
            return Reference.parse(self.image).repository.endswith(repositories)
        return False

    async def _pull(self) -> Image:
        """Pull the image, with retries and backoff, without a limit."""
        pause, started_at = self.node.retry, time.monotonic()
        while True:
            self.event("Normal", "Pulling", f'Pulling image "{self.image}"')
            try:
                args = (self.image, self.folder / self.name, self.node.registry)
                image = await asyncio.to_thread(image_pull.pull, *args)
            except ValueError as error:
                text = f'Failed to apply default image tag "{self.image}": '
                self._fail("InvalidImageName", f'{text}couldn\'t parse image name "{self.image}": {error}')
            except PullError as error:
                again = f'Back-off pulling image "{self.image}"'
                self.event("Warning", "Failed", f'Failed to pull image "{self.image}": {error}')
                self._fail("ErrImagePull", str(error))
                self.event("Normal", "BackOff", again)
                self._fail("ImagePullBackOff", f"{again}: ErrImagePull: {error}")
            else:
                took = f"{int((time.monotonic() - started_at) * 1000)}ms"
                text = f'Successfully pulled image "{self.image}" in {took} ({took} including waiting).'
                self.event("Normal", "Pulled", text)
                self.image_id = f"{self.image.partition('@')[0]}@{image.digest}"
                return image
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_BACK_OFF)

    async def _variables(self, image: Image) -> dict[str, str]:
        while True:
            try:
                known = container_inputs.variables(self.node.store, self.pod, self.spec)
            except NotReady as error:
                self._fail("CreateContainerConfigError", str(error))
            else:
                if container_inputs.command_line(self.spec, image.config, known) or not image.digest:
                    return known
                self._fail("CreateContainerError", "no command specified")
            await asyncio.sleep(self.node.retry)

    async def _run_process(self, image: Image, known: Mapping[str, str], mounts: Mapping[str, Path]) -> None:
        rootfs, words = self.folder / self.name, container_inputs.command_line(self.spec, image.config, known)
        command = [image_pull.localise(word, rootfs, mounts) for word in words]
        if self._is_here:
            words = ["-m", "local.kaniko", *command] if self._is_kaniko else command[1:]
            command = [sys.executable, *words]
            given = {key: image_pull.localise(value, rootfs, mounts) for key, value in known.items()}
            own = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT), "TMPDIR": str(self.folder)}
            if place := mounts.get("/kaniko/buildcontext"):  # a constant of the real one, a path here
                own["BUILD_CONTEXT"] = str(place)
            env, place = image_pull.inherited() | given | own, self.folder
        else:
            of_image = dict(pair.split("=", 1) for pair in image.config.get("Env") or [])
            hostname = self.pod["spec"].get("hostname") or self.pod["metadata"]["name"]
            given = {**of_image, **known, "HOSTNAME": hostname}
            env = await asyncio.to_thread(image_pull.environment, rootfs, given, mounts)
            place = self._workdir(image, rootfs, mounts)
        program = _program(command[0], place, env["PATH"])
        with self.log.open("ab") as log:
            try:
                self.process = await asyncio.create_subprocess_exec(
                    program, *command[1:], cwd=place, env=env, stdout=log, stderr=log, start_new_session=True
                )
            except OSError as error:
                raise StartError(f"exec {command[0]}: {(error.strerror or str(error)).lower()}") from error
        started_at = self._begin()
        try:
            code = await self.process.wait()
        finally:
            self.kill()  # also what the main process has left behind
            await self.process.wait()
        self._end(code if code >= 0 else 128 - code, started_at)

    def _workdir(self, image: Image, rootfs: Path, mounts: Mapping[str, Path]) -> Path:
        inside = self.spec.get("workingDir") or image.config.get("WorkingDir") or "/"
        real = Path(image_pull.localise(inside, rootfs, mounts))
        place = rootfs / inside.lstrip("/") if str(real) == inside else real
        place.mkdir(parents=True, exist_ok=True)
        return place

    def _begin(self) -> str:
        started_at = timestamp()
        self.event("Normal", "Created", f"Created container: {self.name}")
        self.event("Normal", "Started", f"Started container {self.name}")
        self._become({"running": {"startedAt": started_at}})
        return started_at

    def _end(self, code: int, started_at: str, reason: str = "", message: str = "") -> None:
        terminated = {
            "exitCode": code,
            "reason": reason or ("Error" if code else "Completed"),
            "startedAt": started_at,
        }
        if not message and self.termination_log.exists():
            message = self.termination_log.read_bytes()[:MESSAGE_BYTES].decode(errors="replace")
        if not message and code and self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            message = self.log.read_bytes()[-MESSAGE_BYTES // 2 :].decode(errors="replace")
        last = {"finishedAt": timestamp(), **({"message": message} if message else {})}
        self._become({"terminated": terminated | last})
        self.exit.set_result(code)

    def _fail(self, reason: str, message: str) -> None:
        self.event("Warning", "Failed", f"Error: {reason if 'Image' in reason else message}")
        self._become({"waiting": {"reason": reason, "message": message}})

    def _become(self, state: Object) -> None:
        self.state = state
        self.tried.set()
        self.changed()

    def _write(self, line: str) -> None:
        with self.log.open("a") as log:
            log.write(f"{line}\n")


def _program(name: str, place: Path, path: str) -> str:
    """Resolve the command. Raises StartError as runc does."""
    if "/" not in name:
        if found := shutil.which(name, path=path):
            return found
        raise StartError(f'exec: "{name}": executable file not found in $PATH')
    if not (place / name).exists():
        raise StartError(f'exec: "{name}": stat {name}: no such file or directory')
    if not os.access(place / name, os.X_OK):
        raise StartError(f'exec: "{name}": permission denied')
    return str(place / name)
