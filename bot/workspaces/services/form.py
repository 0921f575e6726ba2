"""The modal to start a service. Pure."""

import json
import re

from bot.core.errors import UserError
from bot.platform.config.environments import ServiceConfig
from bot.platform.slack.blocks import (
    Block,
    View,
    context,
    form_modal,
    input_block,
    section,
    text_box,
    value_of,
    where_shown,
)
from bot.platform.slack.mrkdwn import plain
from bot.workspaces.services.snippet import (
    DEFAULT_CPU,
    DEFAULT_MEMORY,
    MAX_SNIPPET,
    Service,
    allowed_service,
)

SERVICE_FORM = "start_service_form"  # callback id
TITLE = "Start service"
LABELS = {
    "name": "Name",
    "image": "Image",
    "port": "Port",
    "replicas": "Replicas",
    "gpus": "GPUs per replica",
    "cpu": "CPU per replica",
    "memory": "Memory per replica",
    "command": "Command",
}
HINTS = {
    "name": "Lowercase letters, digits, dashes",
    "port": "The port that the container listens on, such as 8000",
    "replicas": "Default: 1",
    "gpus": "Default: 0",
    "cpu": f"Default: {DEFAULT_CPU}",
    "memory": f"Default: {DEFAULT_MEMORY}",
    "command": "Default: the image's command",
}
MORE = "more"  # the field with YAML
EXAMPLE = "volumes: {models: /models}"
MAX_HINT = 150  # characters of a placeholder, by Slack's rule
MAX_ERROR = 1_000  # characters below a field; more would not be read
WHOLE = re.compile("0|[1-9][0-9]{0,8}", re.ASCII)
PLACE = re.compile(r"form:(?:([0-9]+):)? ")
NEXT = re.compile(r"\n(?=form:)")
MISSING = re.compile("missing key: ([a-z]+)")


def service_form(channel: str, config: ServiceConfig | None, error: str = "") -> View:
    allowed = config.images if config else ()
    hints = HINTS | {"image": f"Allowed: {', '.join(allowed)}"[:MAX_HINT]}
    fields = [
        _optional(each, label, text_box(hints[each], MAX_SNIPPET, action_id=each))
        for each, label in LABELS.items()
    ]
    snippet = text_box(EXAMPLE, MAX_SNIPPET, action_id=MORE, multiline=True)
    note = (
        "Name, image, and port are required, above or in the YAML. Others can read it: don't put "
        "credentials there."
    )
    blocks = [
        *([section(f":warning: {plain(error)}")] if error else []),
        *fields,
        _optional(MORE, "More settings as YAML", snippet),
        context(f"{note} {where_shown('service', channel)}"),
    ]
    return form_modal(TITLE, blocks, SERVICE_FORM, "Start", channel)


def read_service_form(view: View, config: ServiceConfig | None) -> tuple[str, Service]:
    """Return the name and the service. Raises UserError."""
    values = _values(view)
    lines = [f"{key}: {_yaml(values[key])}" for key in _filled(values)]
    return allowed_service("\n".join([*lines, values[MORE]]).strip() or "{}", config, "form")


def service_errors(view: View, error: UserError) -> dict[str, str]:
    """Return each mistake below its field."""
    filled, found = _filled(_values(view)), dict[str, str]()
    for mistake in NEXT.split(str(error)):
        field, text = _field(mistake, filled), PLACE.sub("", mistake, count=1)
        found[field] = f"{found[field]} {text}" if field in found else text
    return {field: text[:MAX_ERROR] for field, text in found.items()}


def _field(mistake: str, filled: list[str]) -> str:
    place, missing = PLACE.match(mistake), MISSING.search(mistake)
    if missing and missing[1] in LABELS:
        return missing[1]
    if place is None or not place[1]:
        return "image" if mistake.startswith("image ") else MORE
    number = int(place[1])
    return filled[number - 1] if number <= len(filled) else MORE


def _values(view: View) -> dict[str, str]:
    values = view["state"]["values"]
    return {key: value_of(values[key][key]) for key in (*LABELS, MORE)}


def _filled(values: dict[str, str]) -> list[str]:
    """Return the fields with a value, in the order of their lines."""
    return [key for key in LABELS if values[key]]


def _yaml(value: str) -> str:
    """Return a field as one line of YAML, which it can't leave."""
    return value if WHOLE.fullmatch(value) else json.dumps(value, ensure_ascii=False)


def _optional(block: str, label: str, element: Block) -> Block:
    return input_block(block, label, element, optional=True)
