"""What a repository's own files say about the packages it needs: uv.lock, pyproject, requirements. Pure."""

import posixpath
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bot.core.errors import UserError

# Gigabytes that change every few months, among packages that change every few days.
FRAMEWORKS = re.compile(r"torch|pytorch-triton.*|triton|nvidia-.*|jax|jaxlib|jax-cuda.*|tensorflow(-.*)?")
PYPI = "https://pypi.org/simple"
INSTALLED = (
    ("commands", "project.scripts"),
    ("commands", "project.gui-scripts"),
    ("entry points", "project.entry-points"),
    ("commands", "tool.poetry.scripts"),
    ("entry points", "tool.poetry.plugins"),
    ("extension modules", "tool.setuptools.ext-modules"),
    ("a build script", "tool.poetry.build"),
)
# Backends that copy Python files and nothing else, so that the files can as well be read where they lie.
PURE = re.compile(r"hatchling|flit_core|poetry\.core|uv_build|pdm\.backend|setuptools")
POINTERS = re.compile(r"^[ \t]*(?:-r|-c|--requirement|--constraint)[ \t=]*(\S+)", re.MULTILINE)
ASKING = re.compile(r"^[ \t]*(?:-r|--requirement)[ \t=]*(\S+)", re.MULTILINE)  # -c only chooses versions
REQUIREMENT = re.compile(r"\s*([\w.-]+)\s*(?:\[([^]]*)\])?([^;]*)")
ELSEWHERE = re.compile(r"== '(?:win32|darwin|cygwin)'")  # of markers
SOURCES = {"url", "git", "path", "directory", "editable", "virtual"}
MOST_VALUES = 150_000  # of TOML: 4 MiB of brackets become 90 MiB of lists; a lock of 4 MiB has 130,000
# tomllib takes the square of the number of names that dots join; no tool writes ten.
_NAME = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
LONG_KEY = re.compile(rf"(?<![\w-]){_NAME}(?:[ \t]*+\.[ \t]*+{_NAME}){{20}}")
OPTIONS = re.compile(r"(--(?:extra-)?index-url|-i|--find-links|-f)[\s=]\S+")


@dataclass(frozen=True)
class FrameworkPins:
    """The heavy packages of a lock or of requirements, as lines that install just these."""

    lines: tuple[str, ...] = ()
    options: tuple[str, ...] = ()  # of the installer: where to find them


def toml(text: str, file: str) -> dict[str, Any]:
    """Raises UserError for what is not TOML, or is nested beyond any use."""
    if long := LONG_KEY.search(text):
        line = text.count("\n", 0, long.start()) + 1
        raise UserError(f"{file} can't be read: more than 20 names are joined by dots in line {line}")
    if sum(map(text.count, "=,[{")) > MOST_VALUES:
        raise UserError(f"{file} can't be read: it has more than {MOST_VALUES:,} values")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise UserError(f"{file} can't be read: its lists or tables are nested too deeply") from None
    except ValueError as error:  # also of a number with thousands of digits
        raise UserError(f"{file} can't be read: {error}") from None


# --- uv.lock


def local_packages(lock: Mapping[str, Any]) -> list[str]:
    """Packages that lie in the repository itself, the project at its root aside."""
    kinds = ("editable", "directory", "path", "virtual")
    places = {
        p["name"]: next((p["source"][k] for k in kinds if k in p.get("source", {})), ".") for p in _all(lock)
    }
    return [name for name, place in places.items() if place != "."]


def not_locked(lock: Mapping[str, Any], project: Mapping[str, Any]) -> list[str]:
    """The dependencies in pyproject.toml that the lock was made without.

    `uv sync --frozen` leaves them out and says nothing. `--locked` would, but resolves all anew where the
    index is not the one that the lock was made with, such as a mirror in the cluster.
    """
    about = project.get("project", {})
    own = _normal(about.get("name", ""))
    root = next((p for p in _all(lock) if p["name"] == own), {})
    if "metadata" not in root and "dependencies" in root:  # written by an old uv
        return []
    entries = root.get("metadata", {}).get("requires-dist", [])
    known = [e for e in entries if "extra ==" not in e.get("marker", "")]
    from_elsewhere = {own, *(e["name"] for e in known if SOURCES & e.keys())}
    locked = {
        (e["name"], frozenset(e.get("extras", [])), versions)
        for e in known
        for versions in (None, _versions(e.get("specifier", "")))
    }
    asked = {line: _requirement(line) for line in about.get("dependencies", [])}
    return [line for line, one in asked.items() if one[0] not in from_elsewhere and one not in locked]


def _requirement(line: str) -> tuple[str, frozenset[str], frozenset[str] | None]:
    """Its name, extras and versions; None for versions that are not said, or can't be compared."""
    name, extras, versions = match.groups("") if (match := REQUIREMENT.match(line)) else ("", "", "")
    found = _versions(versions)
    named = frozenset(_normal(extra) for extra in extras.split(",") if extra)
    return _normal(name), named, None if found == frozenset({""}) else found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def _versions(text: str) -> frozenset[str] | None:
    """As uv writes them; None where more than blanks and zeros may differ (`1.0-rc1`, an address)."""
    plain = re.sub(r"[\s()]|(?<!\d)0+(?=\d)", "", text)
    return frozenset(plain.strip(",").split(",")) if re.fullmatch(r"[<>=!~\d.*,]*", plain) else None


def heavy_of_lock(lock: Mapping[str, Any]) -> FrameworkPins:
    """Nothing when the lock leaves a choice (two versions of one package), which only uv itself can make."""
    asked = _asked(lock)
    found = [p for p in _all(lock) if p["name"] in asked and FRAMEWORKS.fullmatch(p["name"]) and _wheels(p)]
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


def _asked(lock: Mapping[str, Any]) -> set[str]:
    """What the project needs on Linux. Its extras and groups are locked as well, and not installed."""
    named = defaultdict(list)
    for package in _all(lock):
        named[package["name"]].append(package)
    waiting = [(p["name"], "") for p in _all(lock) if "." in p.get("source", {}).values()]
    seen: set[tuple[str, str]] = set()  # names, each with an extra
    while waiting:
        name, extra = one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        for package in named[name]:
            optional = package.get("optional-dependencies", {})
            for need in optional.get(extra, []) if extra else package.get("dependencies", []):
                marker = need.get("marker", "")
                if "linux" in marker or not ELSEWHERE.search(marker):
                    waiting += [(need["name"], x) for x in ("", *need.get("extra", []))]
    return {name for name, _ in seen}


def _wheels(package: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Those for Linux on x86-64, of any Python."""
    wheels: list[dict[str, Any]] = package.get("wheels", [])
    return [w for w in wheels if re.search(r"linux[^-]{0,200}_x86_64\.whl|-any\.whl", w.get("url", ""))]


def _line(package: Mapping[str, Any]) -> str:
    hashes = [f"--hash={w['hash']}" for w in _wheels(package) if "hash" in w]
    return " ".join([f"{package['name']}=={package['version']}", *hashes])


# --- pyproject.toml


def has_dependencies(project: Mapping[str, Any]) -> bool:
    """Listed in the file itself, and not only found by running its build."""
    return "dependencies" in project.get("project", {})


def only_poetry(project: Mapping[str, Any]) -> bool:
    """Its dependencies are where only Poetry's own build reads them, and that builds it."""
    poetry = _table(project, "tool.poetry")
    return "project" not in project and "dependencies" in poetry and poetry.get("package-mode", True)


def why_install(project: Mapping[str, Any], setup: str = "", cfg: str = "") -> str:
    """Why the repository must be installed to work, in words; empty when its files work where they lie."""
    for words, where in INSTALLED:
        if _table(project, where):
            return f"`pyproject.toml` has {words} ([{where}])"
    if hooks := _hooks(project):
        return f"`pyproject.toml` has the build hook {hooks[0]} ([tool.hatch])"
    about = project.get("project", {})
    backend = project.get("build-system", {}).get("build-backend", "setuptools")
    if not PURE.match(backend):
        return f"it is built by {backend}, which may compile"
    if "dependencies" in about.get("dynamic", []):
        return "`pyproject.toml` has its dependencies worked out by its build"
    if match := re.search(r"ext_modules|entry_points", setup):
        return f"`setup.py` has {match[0]}"
    return "`setup.cfg` has [options.entry_points]" if "[options.entry_points]" in cfg else ""


def _hooks(project: Mapping[str, Any]) -> list[str]:
    """Hatch's, but for those that only write the version down: `vcs` needs a .git, which no image has."""
    build = _table(project, "tool.hatch.build")
    places = (build, *build.get("targets", {}).values())
    return [hook for place in places for hook in place.get("hooks", {}) if hook not in {"vcs", "version"}]


def _table(project: Mapping[str, Any], path: str) -> Any:
    found: Any = project
    for key in path.split("."):
        found = found.get(key, {}) if isinstance(found, Mapping) else {}
    return found


# --- requirements


def pointers(path: str, text: str, kind: re.Pattern[str] = POINTERS) -> list[str]:
    """The files that this one names with -r and -c, from the repository's root. Raises UserError."""
    found = [p for p in kind.findall(text) if "://" not in p]
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
            if not what.startswith("-") and what.endswith((".whl", ".tar.gz", ".zip")) and "://" not in what:
                return f"`{line}` in {path}"
    return ""


def heavy_of_requirements(files: Mapping[str, str]) -> FrameworkPins:
    """Only what is asked for and pinned with ==. Without hashes, what these need comes along."""
    lines = sorted({line for text in files.values() for line in _lines(text)})
    asked = {line for path in _asking(files) for line in _lines(files[path])}
    heavy = [x for x in lines if x in asked and re.match(rf"(?:{FRAMEWORKS.pattern})(?:\[[\w,-]+\])?==", x)]
    options = [x for x in lines if OPTIONS.match(x)]
    hashed = any("--hash=" in line for line in lines)
    how = ("--no-deps",) if hashed else ()
    return (
        FrameworkPins(tuple(heavy + options), ("--index-strategy=unsafe-best-match", *how))
        if heavy
        else FrameworkPins()
    )


def _asking(files: Mapping[str, str]) -> list[str]:
    """The first, and those that it asks for; the others (-c) only choose versions."""
    found = dict.fromkeys([next(iter(files))])
    waiting = list(found)
    for path in waiting:  # which grows
        new = dict.fromkeys(p for p in pointers(path, files[path], ASKING) if p not in found)
        found |= new
        waiting += new
    return waiting


def _lines(text: str) -> Iterator[str]:
    """Continued lines joined, comments taken off."""
    for line in text.replace("\\\n", " ").splitlines():
        if plain := re.sub(r"(^|\s)#.*", "", line).strip():
            yield re.sub(r"\s+", " ", plain)
