"""The executor: context, build, digest file, and push, in the real order."""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from local.image_formats import digest_of
from local.image_pull import Reference, registry_request
from local.kaniko import context, dockerfile
from local.kaniko.build import Build
from local.kaniko.image import reaching
from local.kaniko.options import USAGE, Options, Stop


def main() -> int:
    signal.signal(signal.SIGTERM, _terminated)
    try:
        with tempfile.TemporaryDirectory(prefix="kaniko-", ignore_cleanup_errors=True) as folder:
            execute(Options(sys.argv[1:]), Path(folder))
    except Stop as stop:
        print(stop, file=sys.stderr, flush=True)
        return stop.code
    return 0


def execute(options: Options, folder: Path) -> None:
    """Raises Stop."""
    log = _logger()
    with _prefixed("Error: error resolving source context: ", USAGE):
        source = context.fetch(options, Path(os.environ.get("BUILD_CONTEXT", folder / "context")))
    file = _dockerfile(options, source)
    names = options.all("destination")
    if not names and options.one("no-push") != "true":
        raise Stop(f"Error: you must provide --destination, or use --no-push{USAGE}")
    for name in names:
        _check_push(options, Reference.parse(name))
    if names:  # otherwise another container builds from the context
        _drop_ignored(file, source)
    with _prefixed("error building image: "):
        instructions = _parsed(file)
        with _prefixed("error building stage: "):
            draft = Build(options, log, source, folder).run(instructions)
    if digest_file := options.one(
        "digest-file"
    ):  # before the push, as Kaniko does: only valid with exit code 0
        Path(digest_file).write_text(digest_of(draft.documents()[1]))
    for name in names:
        to = Reference.parse(name)
        log(f"Pushing image to {name}")
        with _prefixed(f"error pushing image: failed to push to destination {name}: "):
            log(f"Pushed {to.host}/{to.repository}@{draft.push(to)}")


def _terminated(_: int, __: FrameType | None) -> None:
    raise Stop("terminated", 143)


@contextmanager
def _prefixed(text: str, end: str = "") -> Iterator[None]:
    try:
        yield
    except Stop as stop:
        raise Stop(f"{text}{stop}{end}", stop.code) from stop


def _logger() -> Callable[[str], None]:
    started = time.monotonic()
    return lambda text: print(
        f"\x1b[36mINFO\x1b[0m[{int(time.monotonic() - started):04}] {text}", file=sys.stderr, flush=True
    )


def _dockerfile(options: Options, source: Path) -> Path:
    """Return the Dockerfile's path, which can be outside the context."""
    name = options.one("dockerfile", "Dockerfile")
    for path in (Path(name), source / name):
        if path.is_file() and (path.is_absolute() or path.is_relative_to(source)):
            return path
    why = "please provide a valid path to a Dockerfile within the build context with --dockerfile"
    raise Stop(f"Error: error resolving dockerfile path: {why}{USAGE}")


def _check_push(options: Options, to: Reference) -> None:
    place = f'checking push permission for "{to.host}/{to.repository}:{to.tag}"'
    with _prefixed(f"error checking push permissions: {place}: "), reaching(to):
        options.check_http(to.host)
        path = f"/v2/{to.repository}/blobs/uploads/"
        with registry_request(to.host, "POST", path) as answer:
            if answer.status != 202:
                raise Stop(f"POST https://{to.host}{path}: unexpected status code {answer.status}")


def _parsed(file: Path) -> list[dockerfile.Instruction]:
    try:
        return dockerfile.parse(file.read_text())
    except dockerfile.DockerfileError as error:
        raise Stop(f"parsing dockerfile: {error}") from error


def _drop_ignored(file: Path, source: Path) -> None:
    """Delete ignored files from the cloned context. An ignore file next to the Dockerfile has priority."""
    for rules in (file.with_name(f"{file.name}.dockerignore"), source / ".dockerignore"):
        if rules.exists():
            out = dockerfile.ignored(rules.read_text())
            dropped = [path for path in source.rglob("*") if out(path.relative_to(source))]
            for path in reversed(dropped):
                with suppress(OSError):  # a directory with files that "!" re-includes
                    path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
            return


if __name__ == "__main__":
    sys.exit(main())
