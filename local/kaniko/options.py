"""Parse the executor's command line; `Stop` ends a build."""

from pathlib import Path

# How the real one works, not what it makes.
MANNERS = {"cache", "cache-repo", "cache-ttl", "compressed-caching", "snapshot-mode", "use-new-run"}
MANNERS |= {"push-retry", "image-download-retry", "image-fs-extract-retry"}
FOLLOWED = {"context", "context-sub-path", "git", "dockerfile", "destination", "digest-file"}
FOLLOWED |= {"image-format", "insecure-registry", "reproducible", "no-push"}
SWITCHES = {"cache", "compressed-caching", "use-new-run", "reproducible", "no-push"}
USAGE = "\n" + (Path(__file__).parent / "usage.txt").read_text()  # printed by v1.28.3


class Stop(Exception):  # noqa: N818 - the end of a build: the line that is printed, and the exit code
    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


class Options:
    """Parse as Go's pflag does: `--switch`, `--switch=false`, `--name=value`, `--name value`. Raises Stop."""

    def __init__(self, words: list[str]) -> None:
        self.given: dict[str, list[str]] = {}
        rest = iter(words)
        for word in rest:
            name, equals, value = word.removeprefix("--").partition("=")
            if not word.startswith("--"):
                raise Stop(
                    f'Error: unknown command "{word}" for "executor"\nRun \'executor --help\' for usage.'
                )
            if name not in MANNERS | FOLLOWED:
                raise Stop(f"Error: unknown flag: --{name}{USAGE}")
            if not equals:
                value = "true" if name in SWITCHES else next(rest, "")
                if not value:
                    raise Stop(f"Error: flag needs an argument: --{name}{USAGE}")
            self.given.setdefault(name, []).append(value)
        if self.one("image-format", "docker") != "docker":
            raise Stop("Error: a local build makes docker images only")

    def one(self, name: str, default: str = "") -> str:
        return self.all(name)[-1] if self.all(name) else default

    def all(self, name: str) -> list[str]:
        return self.given.get(name, [])

    def check_http(self, host: str) -> None:
        """Raise Stop for an unnamed registry without TLS. (The real Kaniko allows loopback.)"""
        if host not in self.all("insecure-registry"):
            here = host.startswith(("127.", "localhost"))
            why = "http: server gave HTTP response to HTTPS client"
            why = why if here else f"dial tcp: lookup {host}: no such host"
            raise Stop(f'Get "https://{host}/v2/": {why}')
