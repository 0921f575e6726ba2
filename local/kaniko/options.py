"""The executor's command line, and how a build ends."""

from local.images import Reference

# Lists of literals would take fifty lines.
SWITCHES = """
    cache cache-run-layers cache-copy-layers no-push-cache compressed-caching use-new-run single-snapshot
    cleanup pre-cleanup reproducible force insecure insecure-pull skip-tls-verify skip-tls-verify-pull
    dryrun skip-default-registry-fallback ignore-var-run push-ignore-immutable-tag-errors
    skip-push-permission-check
""".split()  # noqa: SIM905
VALUES = """
    context context-sub-path git dockerfile destination cache-repo cache-ttl cache-dir
    snapshot-mode digest-file
    image-name-with-digest-file image-name-tag-with-digest-file push-retry image-download-retry target
    label image-fs-extract-retry log-format insecure-registry skip-tls-verify-registry registry-certificate
    secret registry-client-cert registry-mirror registry-map ignore-path build-arg image-format compression
    compression-level credential-helpers
""".split()  # noqa: SIM905
NOT_HERE = ("dryrun", "target", "secret", "ignore-path")  # real ones; ignoring them would build another image
USAGE = "\nUsage:\n  executor [flags]\n"


class Stop(Exception):  # noqa: N818 - the end of a build: the line that is printed, and the exit code
    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


class Options:
    """Read as Go's pflag does: `--switch`, `--switch=false`, `--name=value`, `--name value`. Raises Stop."""

    def __init__(self, words: list[str]) -> None:
        self.given: dict[str, list[str]] = {}
        rest = iter(words)
        for word in rest:
            name, equals, value = word.removeprefix("--").partition("=")
            if not word.startswith("--"):
                raise Stop(f'Error: unknown command "{word}" for "executor"{USAGE}')
            if name not in (*SWITCHES, *VALUES):
                raise Stop(f"Error: unknown flag: --{name}{USAGE}")
            if name in NOT_HERE:
                raise Stop(f"Error: a local build has no --{name}")
            if not equals:
                value = "true" if name in SWITCHES else next(rest, "")
                if not value:
                    raise Stop(f"Error: flag needs an argument: --{name}{USAGE}")
            self.given.setdefault(name, []).append(value)

    def on(self, name: str) -> bool:
        return self.one(name) == "true"

    def one(self, name: str, default: str = "") -> str:
        return self.all(name)[-1] if self.all(name) else default

    def all(self, name: str) -> list[str]:
        return self.given.get(name, [])

    @property
    def cache_repo(self) -> str:
        first = Reference.parse(self.all("destination")[0])
        return self.one("cache-repo", f"{first.host}/{first.repository}/cache")

    def check_http(self, host: str) -> None:
        """A registry without TLS must be named. (The real one forgives loopback, where no cluster's is.)"""
        if not self.on("insecure") and host not in self.all("insecure-registry"):
            here = host.startswith(("127.", "localhost"))
            why = "http: server gave HTTP response to HTTPS client"
            raise Stop(
                f'Get "https://{host}/v2/": {why if here else f"dial tcp: lookup {host}: no such host"}'
            )
