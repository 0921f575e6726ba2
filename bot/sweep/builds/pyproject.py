"""Read pyproject.toml, within limits for any untrusted TOML: its dependencies, and why a repository must be
installed to work and so is built by one Job, also by setup.py and setup.cfg. Pure.
"""

import re
import tomllib
from collections.abc import Mapping
from typing import Any

from bot.core.errors import UserError

MAX_VALUES = 150_000  # 4 MiB of brackets become 90 MiB of lists; a uv.lock of 4 MiB has 130,000 values
# Regular expressions, tomllib's too, hold the interpreter's lock to their end: 1.2 s for a number of 4 MiB.
MAX_LINE = 64 * 1024  # characters
LINE = re.compile(r"[^\n]+")
# tomllib takes quadratic time in the number of dotted names; no tool writes ten.
_NAME = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
LONG_KEY = re.compile(rf"(?<![\w-]){_NAME}(?:[ \t]*+\.[ \t]*+{_NAME}){{20}}")


def toml(text: str, file: str) -> dict[str, Any]:
    """Parse TOML within limits: `tomllib` has none.

    Raises UserError if it is invalid, or larger or more nested than any tool writes.
    """
    for line in LINE.finditer(text):
        if line.end() - line.start() > MAX_LINE:
            raise _error(text, file, line, f"a line can have at most {MAX_LINE:,} characters")
        if LONG_KEY.search(text, *line.span()):
            raise _error(text, file, line, "a key can have at most 20 names joined by dots")
    if sum(map(text.count, "=,[{")) > MAX_VALUES:
        raise UserError(f"{file} can have at most {MAX_VALUES:,} values.")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise UserError(f"{file}: lists or tables are nested too deeply.") from None
    except ValueError as error:  # also of a number with thousands of digits
        raise UserError(f"{file} is not valid TOML: {error}.") from None


def _error(text: str, file: str, line: re.Match[str], problem: str) -> UserError:
    return UserError(f"{file}:{text.count(chr(10), 0, line.start()) + 1}: {problem}.")


INSTALLED = (
    ("commands", "project.scripts"),
    ("commands", "project.gui-scripts"),
    ("entry points", "project.entry-points"),
    ("commands", "tool.poetry.scripts"),
    ("entry points", "tool.poetry.plugins"),
    ("extension modules", "tool.setuptools.ext-modules"),
    ("a build script", "tool.poetry.build"),
)
# Backends that only copy Python files, which can be imported from the repository just as well.
PURE = re.compile(r"hatchling|flit_core|poetry\.core|uv_build|pdm\.backend|setuptools")


def has_dependencies(project: Mapping[str, Any]) -> bool:
    """Return whether the dependencies are in the file, and not computed by a build."""
    return "dependencies" in project.get("project", {})


def from_repository(project: Mapping[str, Any]) -> str:
    """Return the first package that uv takes from the repository; "" if there is none."""
    sources = _table(project, "tool.uv.sources")
    for name, source in sources.items() if isinstance(sources, Mapping) else ():
        each = source if isinstance(source, list) else [source]
        if any(isinstance(one, Mapping) and {"path", "workspace"} & one.keys() for one in each):
            return str(name)
    return ""


def has_dynamic_dependencies(project: Mapping[str, Any]) -> bool:
    dynamic = _table(project, "project.dynamic")
    return isinstance(dynamic, list) and "dependencies" in dynamic


def only_poetry(project: Mapping[str, Any]) -> bool:
    """Return whether only Poetry's build backend can read the dependencies."""
    poetry = _table(project, "tool.poetry")
    return "project" not in project and "dependencies" in poetry and poetry.get("package-mode", True)


def why_install(project: Mapping[str, Any], setup: str = "", cfg: str = "") -> str:
    """Return why the repository must be installed to work; empty if its files can be imported in place.

    Args:
        setup: the text of setup.py.
        cfg: the text of setup.cfg.
    """
    for words, where in INSTALLED:
        if _table(project, where):
            return f"`pyproject.toml` has {words} ([{where}])"
    if hooks := _hooks(project):
        return f"`pyproject.toml` has the build hook {hooks[0]} ([tool.hatch])"
    backend = project.get("build-system", {}).get("build-backend", "setuptools")
    if not PURE.match(backend):
        return f"the build backend {backend} can compile code"
    if match := re.search(r"ext_modules|entry_points", setup):
        return f"`setup.py` has {match[0]}"
    return "`setup.cfg` has [options.entry_points]" if "[options.entry_points]" in cfg else ""


def _hooks(project: Mapping[str, Any]) -> list[str]:
    """Return Hatch's build hooks except those that only write the version."""
    build = _table(project, "tool.hatch.build")
    places = (build, *build.get("targets", {}).values())
    return [hook for place in places for hook in place.get("hooks", {}) if hook not in {"vcs", "version"}]


def _table(project: Mapping[str, Any], path: str) -> Any:
    found: Any = project
    for key in path.split("."):
        found = found.get(key, {}) if isinstance(found, Mapping) else {}
    return found
