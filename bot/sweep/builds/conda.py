"""Read environment.yml, the file of Conda environments. Pure."""

from bot.core.errors import UserError
from bot.platform.config.yaml_reader import Node, read
from bot.sweep.builds.requirements import REFERENCES, local_requirement

FILES = ("environment.yml", "environment.yaml")


def local_line(text: str, file: str) -> str:
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
