"""What a repository's own files say about the packages it needs: uv.lock, pyproject, requirements. Pure."""

import posixpath
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bot.models import UserError

# Gigabytes that change every few months, among packages that change every few days.
HEAVY = re.compile(r"torch|pytorch-triton.*|triton|nvidia-.*|jax|jaxlib|jax-cuda.*|tensorflow(-.*)?")
PYPI = "https://pypi.org/simple"
# Backends that copy Python files and nothing else, so that the files can as well be read where they lie.
PURE = re.compile(r"hatchling|flit_core|poetry\.core|uv_build|pdm\.backend|setuptools")
POINTERS = re.compile(r"^\s*(?:-r|-c|--requirement|--constraint)[\s=]*(\S+)", re.MULTILINE)
OPTIONS = re.compile(r"(--(?:extra-)?index-url|-i|--find-links|-f)[\s=]\S+")


@dataclass(frozen=True)
class Pins:
    """The heavy packages of a lock or of requirements, as lines that install just these."""

    lines: tuple[str, ...] = ()
    options: tuple[str, ...] = ()  # of the installer: where to find them


def toml(text: str, file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{file} can't be read: {error}") from None


# --- uv.lock


def local_packages(lock: Mapping[str, Any]) -> list[str]:
    """Packages that lie in the repository itself, the project at its root aside."""
    kinds = ("editable", "directory", "path", "virtual")
    places = {
        p["name"]: next((p["source"][k] for k in kinds if k in p.get("source", {})), ".") for p in _all(lock)
    }
    return [name for name, place in places.items() if place != "."]


def heavy_of_lock(lock: Mapping[str, Any]) -> Pins:
    """Nothing when the lock leaves a choice (two versions of one package), which only uv itself can make."""
    found = [p for p in _all(lock) if HEAVY.fullmatch(p["name"]) and _wheels(p)]
    names = [p["name"] for p in _all(lock)]
    registries = {p.get("source", {}).get("registry", "") for p in found}
    if any(names.count(p["name"]) > 1 for p in found) or not all(
        r.startswith("https://") for r in registries
    ):
        return Pins()
    elsewhere = tuple(f"--index={url}" for url in sorted(registries - {PYPI}))
    best = ("--index-strategy=unsafe-best-match",) if elsewhere else ()
    return Pins(tuple(sorted(map(_line, found))), ("--no-deps", *best, *elsewhere) if found else ())


def _all(lock: Mapping[str, Any]) -> list[dict[str, Any]]:
    packages: list[dict[str, Any]] = lock.get("package", [])
    return packages


def _wheels(package: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Those for Linux on x86-64, of any Python."""
    wheels: list[dict[str, Any]] = package.get("wheels", [])
    return [w for w in wheels if re.search(r"linux[^-]*_x86_64\.whl|-any\.whl", w.get("url", ""))]


def _line(package: Mapping[str, Any]) -> str:
    hashes = [f"--hash={w['hash']}" for w in _wheels(package) if "hash" in w]
    return " ".join([f"{package['name']}=={package['version']}", *hashes])


# --- pyproject.toml


def has_dependencies(project: Mapping[str, Any]) -> bool:
    """Listed in the file itself, and not only found by running its build."""
    return "dependencies" in project.get("project", {})


def why_install(project: Mapping[str, Any], setup: str) -> str:
    """Why the repository must be installed to work, in words; empty when its files work where they lie."""
    about = project.get("project", {})
    for key, words in (
        ("scripts", "commands"),
        ("gui-scripts", "commands"),
        ("entry-points", "entry points"),
    ):
        if about.get(key):
            return f"`pyproject.toml` has {words} ([project.{key}])"
    backend = project.get("build-system", {}).get("build-backend", "setuptools")
    if not PURE.match(backend):
        return f"it is built by {backend}, which may compile"
    if "dependencies" in about.get("dynamic", []):
        return "`pyproject.toml` has its dependencies worked out by its build"
    if match := re.search(r"ext_modules|entry_points", setup):
        return f"`setup.py` has {match[0]}"
    return ""


# --- requirements


def pointers(path: str, text: str) -> list[str]:
    """The files that this one names with -r and -c, from the repository's root. Raises UserError."""
    found = [p for p in POINTERS.findall(text) if "://" not in p]
    places = [posixpath.normpath(posixpath.join(posixpath.dirname(path), p)) for p in found]
    for written, place in zip(found, places, strict=True):
        if place.startswith(("../", "/")):
            raise UserError(f"{path} names {written}, which lies outside of the repository.")
    return places


def local_requirement(files: Mapping[str, str]) -> str:
    """The first line that needs the repository itself (`-e .`, a path, a wheel in it), with its file."""
    for path, text in files.items():
        for line in _lines(text):
            what = re.sub(r"^(-e|--editable|-f|--find-links)[\s=]*|^[\w.\[\]-]+\s*@\s*", "", line)
            if what.startswith((".", "/", "file:")) or (what != line and "://" not in what):
                return f"`{line}` in {path}"
            if (
                not what.startswith("-")
                and re.search(r"(?<!://)\S+\.(whl|tar\.gz|zip)$", what)
                and "://" not in what
            ):
                return f"`{line}` in {path}"
    return ""


def heavy_of_requirements(files: Mapping[str, str]) -> Pins:
    """Only what is pinned with ==. Without hashes, what these need comes along."""
    lines = sorted({line for text in files.values() for line in _lines(text)})
    heavy = [x for x in lines if re.match(rf"(?:{HEAVY.pattern})(?:\[[\w,-]+\])?==", x)]
    options = [x for x in lines if OPTIONS.match(x)]
    hashed = any("--hash=" in line for line in lines)
    how = ("--no-deps",) if hashed else ()
    return Pins(tuple(heavy + options), ("--index-strategy=unsafe-best-match", *how)) if heavy else Pins()


def _lines(text: str) -> Iterator[str]:
    """Continued lines joined, comments taken off."""
    for line in text.replace("\\\n", " ").splitlines():
        if plain := re.sub(r"(^|\s)#.*", "", line).strip():
            yield re.sub(r"\s+", " ", plain)
