"""Write docs/configuration.md, docs/schemas/, .env.example, and the list in docs/architecture.md.

Run `make reference`; a test fails when a file is out of date.
"""

import ast
import json
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from bot.offline_commands import schema_text
from bot.platform.config.limits import A_MINUTE
from bot.platform.config.policy import Config
from bot.platform.config.rules import Schema
from bot.platform.config.section import json_schema
from bot.platform.config.settings import Settings, description_of
from bot.sweep.spaces.space_keys import SpaceFile
from bot.workspace_table import ROOMS
from handlers.api.calls import document

HERE = Path(__file__).parent
TYPES: dict[str, Schema] = {
    name: {key: value for key, value in schema.items() if key != "title"}
    for name, schema in Settings.model_json_schema()["properties"].items()
}
GROUPS = {
    "Slack": (
        "slack_bot_token",
        "slack_mode",
        "slack_app_token",
        "slack_signing_secret",
        "slack_api_url",
    ),
    "Registry": (
        "image_registry",
        "image_registry_push",
        "image_registry_api",
        "image_registry_plain_http",
        "image_registry_secret",
        "image_push_secret",
        "build_service_account",
        "registry_auth_file",
        "registry_identity",
    ),
    "Builds": (
        *("build_namespace", "kaniko_image", "base_image", "micromamba_image"),
        *("build_network_secret", "build_ca_configmap"),
    ),
    "MLflow and Katib": (
        *("mlflow_tracking_uri", "mlflow_secret", "mlflow_ui_url", "katib_ui_url"),
        *("metrics_reader_image", "katib_db_manager"),
    ),
    "GPU metrics": (
        "prometheus_url",
        "prometheus_token",
        "prometheus_labels",
        "dcgm_scrape_seconds",
        "usage_seconds",
        "watch_seconds",
    ),
    "Retention": ("sweep_days", "image_days"),
    "Runtime": (
        "sweepbot_config",
        "k8s_namespace",
        "redis_url",
        "sweepbot_data",
        "sweepbot_unconfirmed",
        "worker_concurrency",
        "http_host",
        "http_port",
        "sweepbot_api_port",
        "runbook_url",
        "shutdown_grace",
        "log_level",
        "log_format",
    ),
}

ENVIRONMENT = """\
Set these for `sweepbot serve`, `work`, and `all`. An empty value means the default. `.env.example` has the
same list.

For each repository with a `secret`, also set `GIT_USERNAME_<SECRET>` and `GIT_PASSWORD_<SECRET>`, with the
Secret's name in capitals and `_` for `-` and `.`, and for each webhook `WEBHOOK_<NAME>_SECRET`. Proxies are
set by `HTTPS_PROXY` and `NO_PROXY`, and your own CA by `SSL_CERT_FILE`: a mounted file with all trusted CAs.
"""
SPACE = """\
A space file is `sweeps/NAME.yaml` in your repository; `space=NAME` selects it. `NAME` in a key stands for a
name of your choice. The limits of the cluster are under `limits` of the
[configuration file](#configuration-file).

```yaml
command: python train.py
objective: {metric: val_loss, goal: minimize}
parameters:
  lr: {min: 1e-4, max: 1e-1, scale: log}
  optimizer: [adam, sgd]
```
"""
CONFIGURATION = """\
`SWEEPBOT_CONFIG` names this YAML file. Sweepbot reads it at startup, and exits with one line per error;
later changes take effect without a restart ([change the configuration](operate.md#change-the-configuration)).
`NAME` in a key stands for a name of your choice; `[]` stands for each entry of a list.
[deploy/base/config/config.yaml](../deploy/base/config/config.yaml) is a commented example.
"""
HEAD = """\
# Configuration

<!-- Written by `make reference` from the fields in bot/. Don't edit this file. -->

Reference of all keys: [space file](#space-file), [configuration file](#configuration-file),
[environment](#environment).

For completion and checks in an editor, use the JSON Schemas [space.schema.json](schemas/space.schema.json)
and [config.schema.json](schemas/config.schema.json). With yaml-language-server, name
the schema in the first line of the file: a URL, or a path from the file's directory to a copy of the schema:
`sweepbot schema space > sweeps/.schema.json`

```yaml
# yaml-language-server: $schema=.schema.json
```
"""
ENV_HEAD = """\
# Settings of Sweepbot: addresses and secrets. People and policy are in the file that SWEEPBOT_CONFIG names.
# Written by `make reference`. Settings that are commented out show their default, or an example; an empty
# value means the default.
"""
LIST_HEAD = """\
## All files

<!-- Written by `make reference` from the files. Don't edit this list. -->

The first sentence of each file, its limits and times, and in parentheses what it defines, to search in.
"""
PACKAGES = ("handlers", "bot", "k8s", "reader", "search")


def files() -> dict[Path, str]:
    """Return the content of each file that this script writes."""
    space, config = json_schema(SpaceFile), json_schema(Config)
    found = {
        HERE / "schemas/space.schema.json": schema_text("space"),
        HERE / "schemas/config.schema.json": schema_text("config"),
        HERE / "schemas/openapi.json": f"{json.dumps(document(), indent=2, ensure_ascii=False)}\n",
    }
    parts = [
        HEAD,
        f"## Space file\n\n{SPACE}",
        _reference(space),
        f"## Configuration file\n\n{CONFIGURATION}",
        _reference(config),
        *_formats(),
        f"## Environment\n\n{ENVIRONMENT}",
        *_environment_tables(),
    ]
    found[HERE / "configuration.md"] = "\n".join(parts)
    found[HERE.parent / ".env.example"] = ENV_HEAD + "".join(_environment_example())
    page = HERE / "architecture.md"
    written, _, _ = page.read_text().partition(LIST_HEAD)
    found[page] = written + LIST_HEAD + "".join(chain.from_iterable(map(_package, PACKAGES)))
    return found


def _package(name: str) -> Iterator[str]:
    """Yield a list of the package's files for each of its folders."""
    for folder in sorted({path.parent for path in (HERE.parent / name).rglob("*.py")}):
        yield f"\n`{folder.relative_to(HERE.parent)}/`: {_about(folder / '__init__.py')}\n\n"
        for path in sorted(set(folder.glob("*.py")) - {folder / "__init__.py"}):
            yield f"- `{path.relative_to(HERE.parent)}`: {_about(path)}\n"


def _about(path: Path) -> str:
    """Return the file's first sentence, the names of its numbers, and those of what it defines."""
    module = ast.parse(path.read_text())
    text = " ".join((ast.get_docstring(module) or "").split("\n\n")[0].split())
    numbers = ", ".join(f"`{name}`" for line in module.body for name in _numbers(line))
    names = ", ".join(name for line in module.body for name in _names(line))
    sentence = f"{text.partition('. ')[0].removesuffix('.')}."
    return " ".join(filter(None, (sentence, numbers, names and f"({names})")))


def _names(line: ast.stmt) -> Iterator[str]:
    """Yield the name of a function, or of a class with its fields and methods."""
    match line:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name.lstrip("_")
        case ast.ClassDef(name=name, body=body):
            inner = [ast.unparse(part.target) for part in body if isinstance(part, ast.AnnAssign)]
            inner += [part.name for part in body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
            shown = " ".join(part.lstrip("_") for part in inner if not part.startswith("__"))
            yield f"{name.lstrip('_')}: {shown}" if shown else name.lstrip("_")


def _numbers(line: ast.stmt) -> Iterator[str]:
    match line:
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
            pairs = list(zip(names, values, strict=False))
        case ast.Assign(targets=[target], value=value):
            pairs = [(target, value)]
        case _:
            return
    for target, value in pairs:
        if isinstance(target, ast.Name) and target.id.isupper() and _is_number(value):
            yield target.id


def _is_number(value: ast.expr) -> bool:
    match value:
        case ast.Constant(value=int() | float()):
            return not isinstance(value.value, bool)
        case ast.BinOp(left=left, right=right):
            return _is_number(left) and _is_number(right)
        case ast.Call(func=ast.Name(id="timedelta")):
            return True
    return False


def _formats() -> Iterator[str]:
    for heading, (introduction, section) in chain(*(room.formats.items() for room in ROOMS)):
        yield f"## {heading}\n\n{introduction}"
        yield _reference(json_schema(section))


def flat(schema: Schema, prefix: str = "") -> Iterator[tuple[str, Schema, bool]]:
    """Yield each key's path (`limits.trials`, `repositories.NAME.url`, `digests[].hour`) and schema.

    The last value is whether the key is required.
    """
    for name, key in schema.get("properties", {}).items():
        yield f"{prefix}{name}", key, name in schema.get("required", ())
        entry = key.get("additionalProperties") or {}
        below = [(".", key), ("[].", key.get("items", {}))]
        below += [(".NAME.", each) for each in entry.get("anyOf", [entry])]
        for step, each in below:
            yield from flat(each, f"{prefix}{name}{step}")


def _reference(schema: Schema) -> str:
    rows = [
        (
            f"`{path}`",
            described(key) + (" **(required)**" if required else ""),
            "" if required else _default(key),
            key["description"],
            _code(_telling(described(key), str(key.get("x-example", "")))),
        )
        for path, key, required in flat(schema)
    ]
    return _table(("Key", "Type", "Default", "Meaning", "Example"), rows)


def _default(key: Schema) -> str:
    if "x-default" in key or ("properties" in key and "x-example" not in key):
        return str(key.get("x-default", ""))
    default = key.get("default")
    return "none" if default in (None, "", [], {}) else _shown(default)


def described(schema: Schema) -> str:
    """Return a schema as the reference shows it: `whole number, 1 to 8`."""
    if "title" in schema:
        return str(schema["title"])
    if "anyOf" in schema:
        return " or ".join(described(each) for each in schema["anyOf"] if each.get("type") != "null")
    if "const" in schema or "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema.get("enum", [schema.get("const")]))
    if schema["type"] == "array":
        item = described(schema["items"]) if "items" in schema else ""
        return f"list of {' or '.join(map(_plural, item.split(' or ')))}" if item else "list"
    if "format" in schema:
        return "secret" if schema["format"] == "password" else str(schema["format"])
    kinds = {"object": "mapping", "integer": "whole number", "boolean": "`true`, `false`"}
    kind = schema["type"] if isinstance(schema["type"], str) else "scalar"
    return kinds.get(kind, kind) + _bounds(schema.get("minimum"), schema.get("maximum"))


def _plural(noun: str) -> str:
    if noun.startswith("`"):  # values, not a noun
        return noun
    return f"{noun}es" if noun.endswith(("s", "x")) else f"{noun}s"


def _bounds(least: float | None, most: float | None) -> str:
    if least is None:
        return ""
    if most is None:
        return f", at least {least:.3g}"
    shown = f"one minute ({least:.3g})" if least == A_MINUTE else f"{least:.3g}"
    return f", {shown} to {most:.10g}"


def _environment_tables() -> Iterator[str]:
    head = ("Name", "Type", "Default", "Meaning", "Example")
    for group, names in GROUPS.items():
        yield f"### {group}\n\n{_table(head, [_environment_row(name) for name in names])}"


def _environment_row(name: str) -> tuple[str, ...]:
    setting = Settings.model_fields[name]
    meaning, default = _meaning(name, setting)
    kind = described(TYPES[name])
    required = " **(required)**" if setting.is_required() else ""
    example = "" if setting.default == _example(setting) else _telling(kind, _example(setting))
    return f"`{name.upper()}`", f"{kind}{required}", default, f"{meaning}.", _code(example)


def _meaning(name: str, setting: FieldInfo) -> tuple[str, str]:
    """Return the meaning and the default; "; default:" in the description explains a default of None."""
    meaning, _, explained = description_of(name).partition("; default: ")
    meaning = meaning[0].upper() + meaning[1:]
    if setting.is_required():
        return meaning, ""
    return meaning, explained or "none" if setting.default is None else f"`{_shown(setting.default)}`"


def _environment_example() -> Iterator[str]:
    for group, names in GROUPS.items():
        yield f"\n# --- {group} ---\n"
        for name in names:
            setting = Settings.model_fields[name]
            value = _example(setting) if setting.default in (None, PydanticUndefined) else setting.default
            comment = "" if setting.is_required() or name == "slack_app_token" else "# "
            yield f"\n# {description_of(name)}\n{comment}{name.upper()}={_shown(value)}\n"


def _example(setting: FieldInfo) -> str:
    default = setting.default if setting.default not in (None, PydanticUndefined) else ""
    return str(setting.examples[0]) if setting.examples else _shown(default)


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _telling(kind: str, example: str) -> str:
    """Return an example unless its type says as much: a number, or one of the values that are listed."""
    return "" if kind.startswith(("whole number", "number", "`")) else example


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    cells = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(each.replace('|', chr(92) + '|') for each in row)} |\n" for row in cells)


def main() -> None:
    for path, content in files().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)


if __name__ == "__main__":
    main()
