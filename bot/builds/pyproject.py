"""Read dependencies from pyproject.toml, and whether the repository must be installed. Pure."""

import re
from collections.abc import Mapping
from typing import Any

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
    about = project.get("project", {})
    backend = project.get("build-system", {}).get("build-backend", "setuptools")
    if not PURE.match(backend):
        return f"the build backend {backend} can compile code"
    if "dependencies" in about.get("dynamic", []):
        return "`pyproject.toml` has dynamic dependencies"
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
