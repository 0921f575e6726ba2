"""The executor: context, build, digest file, push, in the real one's order."""

import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from local.images import Reference, ask
from local.kaniko import context, dockerfile
from local.kaniko.build import Build
from local.kaniko.image import Draft
from local.kaniko.options import USAGE, Options, Stop
from local.registry import digest_of


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
    log = _logger(options.one("log-format", "color"))
    with _prefixed("Error: error resolving source context: ", USAGE):
        source = context.fetch(options, folder / "context")
    file = _dockerfile(options, source)
    destinations = [Reference.parse(name) for name in options.all("destination")]
    if not destinations:
        raise Stop(f"Error: you must provide --destination, or use --no-push{USAGE}")
    if not options.on("skip-push-permission-check"):
        _check_push(options, destinations)
    _drop_ignored(file, source)
    with _prefixed("error building image: "):
        instructions = _parsed(file)
        with _prefixed("error building stage: "):
            draft = Build(options, log, source, folder).run(instructions)
    _write_digest(options, draft)
    for to, name in zip(destinations, options.all("destination"), strict=True):
        log(f"Pushing image to {name}")
        with _prefixed(f"error pushing image: failed to push to destination {name}: "):
            options.check_http(to.host)
            log(f"Pushed {to.host}/{to.repository}@{draft.push(to)}")


def _terminated(_: int, __: FrameType | None) -> None:
    raise Stop("terminated", 143)


@contextmanager
def _prefixed(text: str, end: str = "") -> Iterator[None]:
    try:
        yield
    except Stop as stop:
        raise Stop(f"{text}{stop}{end}", stop.code) from stop


def _logger(kind: str) -> Callable[[str], None]:
    started = time.monotonic()

    def log(text: str) -> None:
        line = f"INFO[{int(time.monotonic() - started):04}] {text}"
        if kind == "json":
            line = json.dumps({"level": "info", "msg": text, "time": f"{datetime.now(UTC):%FT%TZ}"})
        print(line, file=sys.stderr, flush=True)

    return log


def _dockerfile(options: Options, source: Path) -> Path:
    """It may lie outside of the context."""
    name = options.one("dockerfile", "Dockerfile")
    for path in (Path(name), source / name):
        if path.is_file() and (path.is_absolute() or path.is_relative_to(source)):
            return path
    why = "please provide a valid path to a Dockerfile within the build context with --dockerfile"
    raise Stop(f"Error: error resolving dockerfile path: {why}{USAGE}")


def _check_push(options: Options, destinations: list[Reference]) -> None:
    advice = (
        "make sure you entered the correct tag name, and that you are authenticated correctly, and try again"
    )
    for to in destinations:
        place = f"{to.host}/{to.repository}:{to.tag}"
        with _prefixed(
            f'error checking push permissions -- {advice}: checking push permission for "{place}": '
        ):
            options.check_http(to.host)
            try:
                with ask(to.host, "POST", f"/v2/{to.repository}/blobs/uploads/"):
                    continue
            except OSError as error:
                raise Stop(
                    f'Get "http://{to.host}/v2/": dial tcp {to.host}: connect: {error.strerror}'
                ) from error


def _parsed(file: Path) -> list[dockerfile.Instruction]:
    try:
        return dockerfile.parse(file.read_text())
    except dockerfile.DockerfileError as error:
        raise Stop(f"parsing dockerfile: {error}") from error


def _drop_ignored(file: Path, source: Path) -> None:
    """The context is our own clone. An ignore file beside the Dockerfile stands in for the context's."""
    for rules in (file.with_name(f"{file.name}.dockerignore"), source / ".dockerignore"):
        if rules.exists():
            out = dockerfile.ignored(rules.read_text())
            dropped = [path for path in source.rglob("*") if out(path.relative_to(source))]
            for path in reversed(dropped):
                _remove(path)
            return


def _remove(path: Path) -> None:
    """A folder only when nothing in it was asked back with "!"."""
    with suppress(OSError):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def _write_digest(options: Options, draft: Draft) -> None:
    """Before the push, as the real one does: a digest means nothing without exit code 0."""
    if file := options.one("digest-file"):
        Path(file).write_text(digest_of(draft.documents()[1]))


if __name__ == "__main__":
    sys.exit(main())
