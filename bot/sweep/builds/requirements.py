"""Read requirements files and Conda's environment.yml: files that they include, lines that need the
repository, and ML frameworks, such as torch, for a layer of their own. Pure.

Requirements files are pip's own format: lines of requirements (PEP 508, read by `packaging`), options, paths,
and references to other files. pip has no public reader for it, so that part is hand-written, as far as a
recipe needs it.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bot.core.errors import UserError
from bot.platform.config.yaml_reader import Node, read

# Gigabytes that change every few months, among packages that change every few days.
FRAMEWORKS = re.compile(r"torch|pytorch-triton.*|triton|nvidia-.*|jax|jaxlib|jax-cuda.*|tensorflow(-.*)?")
REFERENCES = re.compile(r"^[ \t]*(?:-r|-c|--requirement|--constraint)[ \t=]*(\S+)", re.MULTILINE)
INCLUDES = re.compile(r"^[ \t]*(?:-r|--requirement)[ \t=]*(\S+)", re.MULTILINE)  # -c only chooses versions
OPTIONS = re.compile(r"(--(?:extra-)?index-url|-i|--find-links|-f)[\s=]\S+")
CONDA_FILES = ("environment.yml", "environment.yaml")
MAX_REQUIREMENT = 2000  # characters


@dataclass(frozen=True)
class FrameworkPins:
    """The ML frameworks of a lock or of requirements, as lines that install only these."""

    lines: tuple[str, ...] = ()
    options: tuple[str, ...] = ()  # of the installer: where to find them


def read_requirement(line: str) -> Requirement | None:
    """Return the requirement; None if `packaging` can't read it, or it is longer than any tool writes."""
    if len(line) > MAX_REQUIREMENT:
        return None
    try:
        return Requirement(line)
    except (ValueError, RecursionError):  # ValueError also for numbers of thousands of digits
        return None


def references(path: str, text: str, kind: re.Pattern[str] = REFERENCES) -> list[str]:
    """Return the files that `path` names with -r and -c, from the repository root. Raises UserError."""
    found = [p for p in kind.findall(text) if "://" not in p]
    places = [posixpath.normpath(posixpath.join(posixpath.dirname(path), p)) for p in found]
    for written, place in zip(found, places, strict=True):
        if place.startswith(("../", "/")):
            raise UserError(
                f"{path} names {written}, which is outside the repository. "
                "*Fix:* Move that file into the repository."
            )
    return places


def local_requirement(files: Mapping[str, str]) -> str:
    """Return the first line that needs the repository itself, such as `-e .`, with its file."""
    for path, text in files.items():
        for line in _lines(text):
            what = re.sub(r"^(-e|--editable|-f|--find-links)[\s=]*|^[\w.\[\], -]+@\s*", "", line)
            if what.startswith((".", "/", "file:")) or (what != line and "://" not in what):
                return f"`{line}` in {path}"
            is_path = "/" in what.partition(" ")[0] or what.endswith((".whl", ".tar.gz", ".zip"))
            if is_path and not what.startswith("-") and "://" not in what:
                return f"`{line}` in {path}"
    return ""


def framework_pins(files: Mapping[str, str]) -> FrameworkPins:
    """Return the frameworks that are required and pinned with ==; their dependencies, too, unless hashed."""
    lines = sorted({line for text in files.values() for line in _lines(text)})
    required = {line for path in _included(files) for line in _lines(files[path])}
    frameworks = [line for line in lines if line in required and _pins_framework(line)]
    options = [line for line in lines if OPTIONS.match(line)]
    no_deps = ("--no-deps",) if any("--hash=" in line for line in lines) else ()
    if not frameworks:
        return FrameworkPins()
    return FrameworkPins(tuple(frameworks + options), ("--index-strategy=unsafe-best-match", *no_deps))


def _pins_framework(line: str) -> bool:
    found = read_requirement(line.partition(" --")[0])  # hashes and other options come after it
    if found is None or not FRAMEWORKS.fullmatch(canonicalize_name(found.name)):
        return False
    return any(each.operator == "==" and not each.version.endswith(".*") for each in found.specifier)


def _included(files: Mapping[str, str]) -> list[str]:
    """Return the first file and those that it includes with -r; constraints only choose versions."""
    found = dict.fromkeys([next(iter(files))])
    waiting = list(found)
    for path in waiting:  # which grows
        new = dict.fromkeys(p for p in references(path, files[path], INCLUDES) if p not in found)
        found |= new
        waiting += new
    return waiting


def _lines(text: str) -> Iterator[str]:
    """Yield lines without comments; a backslash at the end of one continues it."""
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        if plain := re.sub(r"(^|\s)#.*", "", line).strip():
            yield re.sub(r"\s+", " ", plain)


def local_conda_line(text: str, file: str) -> str:
    """Return the first line below `pip:` that needs the repository, such as `-r requirements.txt`; or "".

    Raises UserError for a file that describes no environment.
    """
    lines = [line for each in _dependencies(text, file) for line in _pip(each)]
    named = (f"`{line}` in {file}" for line in lines if REFERENCES.match(line))
    return next(named, "") or local_requirement({file: "\n".join(lines)})


def _dependencies(text: str, file: str) -> list[Node]:
    root = read(text, file)
    node = root.value.get("dependencies") if isinstance(root.value, dict) else None
    if node is None or not isinstance(node.value, list) or not node.value:
        raise UserError(f"{file} has no list of `dependencies`. *Fix:* Add it, as `conda env export` does.")
    return list(node.value)


def _pip(node: Node) -> list[str]:
    pip = node.value.get("pip") if isinstance(node.value, dict) else None
    return [each.raw for each in pip.value] if pip and isinstance(pip.value, list) else []
