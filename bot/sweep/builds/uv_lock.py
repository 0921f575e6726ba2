"""Read what a uv.lock installs in an image, and whether it matches pyproject.toml. Pure.

The format is uv's own, and uv has no library; `packaging` reads the markers and versions in it.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from packaging.markers import Marker
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from bot.sweep.builds.pyproject import toml
from bot.sweep.builds.requirements import FRAMEWORKS, MAX_REQUIREMENT, FrameworkPins, read_requirement

Entry = tuple[str, frozenset[str], SpecifierSet | None]  # name, extras, versions
MAX_MARKERS, MAX_MARKER = 500, 500  # different ones in a lock, and characters: each takes up to 10 ms
PYPI = "https://pypi.org/simple"
SOURCES = {"url", "git", "path", "directory", "editable", "virtual"}
# What a marker sees in an image: Linux on x86-64, and any Python, because the base image's is unknown.
PLATFORM = {
    "sys_platform": "linux",
    "platform_system": "Linux",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_release": "",
    "platform_version": "",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
}
PYTHONS = tuple(
    {"python_version": f"3.{minor}", "python_full_version": f"3.{minor}.99"} for minor in range(8, 20)
)


@dataclass(frozen=True)
class Locked:
    """What a uv.lock says, beside its pyproject.toml."""

    missing: tuple[str, ...]  # dependencies that it was made without
    local: tuple[str, ...]  # packages in subdirectories of the repository
    frameworks: FrameworkPins


@lru_cache(maxsize=4)  # a lock has up to 4 MiB
def read(text: str, project: str) -> Locked:
    """Read both files; kept, because a lock takes up to seconds and most commits leave it as it was.

    Raises UserError; AttributeError, KeyError, and TypeError for values of a wrong type.
    """
    lock = toml(text, "uv.lock")
    missing = not_locked(lock, toml(project, "pyproject.toml"))
    return Locked(tuple(missing), tuple(local_packages(lock)), framework_pins(lock))


def local_packages(lock: Mapping[str, Any]) -> list[str]:
    """Return the packages in subdirectories of the repository."""
    kinds = ("editable", "directory", "path", "virtual")
    places = {
        p["name"]: next((p["source"][k] for k in kinds if k in p.get("source", {})), ".") for p in _all(lock)
    }
    return [name for name, place in places.items() if place != "."]


def not_locked(lock: Mapping[str, Any], project: Mapping[str, Any]) -> list[str]:
    """Return the dependencies in pyproject.toml that the lock was made without.

    `uv sync --frozen` silently leaves them out. `--locked` would fail, but resolves again where the index is
    not the one that the lock was made with, such as a mirror in the cluster.
    """
    about = project.get("project", {})
    own = canonicalize_name(about.get("name", ""))
    root = next((p for p in _all(lock) if p["name"] == own), {})
    if "metadata" not in root and "dependencies" in root:  # written by an old uv
        return []
    entries = root.get("metadata", {}).get("requires-dist", [])
    known = [e for e in entries if "extra ==" not in e.get("marker", "")]
    from_elsewhere = {own, *(e["name"] for e in known if SOURCES & e.keys())}
    locked = {
        (e["name"], frozenset(e.get("extras", [])), specifier)
        for e in known
        for specifier in (None, _specifier(e.get("specifier", "")))
    }
    return [line for line in about.get("dependencies", []) if not _is_locked(line, locked, from_elsewhere)]


def _is_locked(line: str, locked: AbstractSet[Entry], other: AbstractSet[str]) -> bool:
    """Compare versions only where both files have some. What `packaging` can't read is left to uv."""
    found = read_requirement(line)
    if found is None:
        return True
    name, extras = canonicalize_name(found.name), frozenset(map(canonicalize_name, found.extras))
    return name in other or (name, extras, found.specifier or None) in locked


def _specifier(text: str) -> SpecifierSet | None:
    try:
        return SpecifierSet(text) if len(text) <= MAX_REQUIREMENT else None
    except ValueError:
        return None


def framework_pins(lock: Mapping[str, Any]) -> FrameworkPins:
    """Return the frameworks with their hashes; none if the lock has several versions of one: uv chooses."""
    required = _required(lock)
    found = [
        p for p in _all(lock) if p["name"] in required and FRAMEWORKS.fullmatch(p["name"]) and _wheels(p)
    ]
    versions = Counter(p["name"] for p in _all(lock))
    registries = {p.get("source", {}).get("registry", "") for p in found}
    if any(versions[p["name"]] > 1 for p in found) or not all(r.startswith("https://") for r in registries):
        return FrameworkPins()
    elsewhere = tuple(f"--index={url}" for url in sorted(registries - {PYPI}))
    best = ("--index-strategy=unsafe-best-match",) if elsewhere else ()
    return FrameworkPins(tuple(sorted(map(_line, found))), ("--no-deps", *best, *elsewhere) if found else ())


def _all(lock: Mapping[str, Any]) -> list[dict[str, Any]]:
    packages: list[dict[str, Any]] = lock.get("package", [])
    return packages


def _required(lock: Mapping[str, Any]) -> set[str]:
    """Return what the project needs on a node: its extras and groups are locked, but not installed."""
    named = defaultdict(list)
    for package in _all(lock):
        named[package["name"]].append(package)
    waiting = [(p["name"], "") for p in _all(lock) if "." in p.get("source", {}).values()]
    seen: set[tuple[str, str]] = set()  # names, each with an extra
    applies: dict[str, bool] = {}
    while waiting:
        name, extra = one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        for package in named[name]:
            optional = package.get("optional-dependencies", {})
            for need in optional.get(extra, []) if extra else package.get("dependencies", []):
                marker = need.get("marker", "")
                if marker not in applies:
                    applies[marker] = len(applies) >= MAX_MARKERS or _applies(marker)
                if applies[marker]:
                    waiting += [(need["name"], x) for x in ("", *need.get("extra", []))]
    return {name for name, _ in seen}


def _applies(text: str) -> bool:
    """Return whether a marker can hold in an image; True if it depends on extras, or can't be evaluated."""
    if not text or len(text) > MAX_MARKER or "extra" in text:
        return True
    try:
        marker = Marker(text)
        return any(marker.evaluate({**PLATFORM, **python}) for python in PYTHONS)
    except (ValueError, KeyError, RecursionError):  # also of a comparison that is undefined
        return True


def _wheels(package: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the wheels for Linux on x86-64, of any Python."""
    wheels: list[dict[str, Any]] = package.get("wheels", [])
    return [w for w in wheels if re.search(r"linux[^-]{0,200}_x86_64\.whl|-any\.whl", w.get("url", ""))]


def _line(package: Mapping[str, Any]) -> str:
    hashes = [f"--hash={w['hash']}" for w in _wheels(package) if "hash" in w]
    return " ".join([f"{package['name']}=={package['version']}", *hashes])
