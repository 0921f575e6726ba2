"""The modals to start an environment and to delete a home. Pure."""

from typing import Any

from bot.core.errors import UserError
from bot.platform.config.environments import MAX_CHOICES, EnvironmentConfig, checked_name
from bot.platform.slack.blocks import (
    Block,
    Option,
    View,
    context,
    form_modal,
    input_block,
    modal,
    option,
    section,
    text_box,
    user_name,
    value_of,
    where_shown,
)
from bot.platform.slack.mrkdwn import code
from bot.text.wording import counted
from bot.workspaces.environments.command_line import ENVIRONMENT, OPTIONS, Profiles, with_options
from bot.workspaces.environments.requests import EnvironmentRequest, Verb

FORM, DELETE_HOME_FORM = "start_environment_form", "delete_home_form"  # callback ids
FIELDS = {each.key: each.label for each in (ENVIRONMENT, *OPTIONS)}
ANY = "-"  # no profile has this name
MAX_GPUS = 64  # choices


def form(channel: str, config: EnvironmentConfig, profiles: Profiles = (), error: str = "") -> View:
    keeps = (
        "The home is kept when you stop or delete the environment. Processes, and packages installed "
        "outside the home, are lost."
    )
    machines = [option(ANY, text="Any machine"), *(option(each.name) for each in profiles)][:MAX_CHOICES]
    elements = {
        "name": text_box("Lowercase letters, digits, dashes; default: a generated name"),
        "image": _menu([option(each.name, each.image.rpartition("/")[2]) for each in config.images]),
        "gpus": _menu([option(str(n)) for n in range(min(config.limits.gpus, MAX_GPUS) + 1)]),
        "profile": _menu(machines),
        "size": _menu([option(each.name, f"CPU {each.cpu}, memory {each.memory}") for each in config.sizes]),
        "home": text_box(f"Size of a new home ({config.home}), or a home's name"),
    }
    blocks = [
        *([section(f":warning: {error}")] if error else []),
        *(
            input_block(key, label, elements[key], optional=key in {"name", "home"})
            for key, label in FIELDS.items()
            if key != "profile" or profiles
        ),
        context(f"{keeps} {where_shown('environment', channel)}"),
    ]
    return form_modal("Start environment", blocks, FORM, "Start", channel)


def request_of(body: dict[str, Any]) -> EnvironmentRequest:
    """Return the request of a submitted form to start something, without the form's values."""
    view, user = body["view"], body["user"]
    return EnvironmentRequest(
        verb=Verb.START,
        user=user["id"],
        user_name=user_name(user),
        channel=view["private_metadata"],
        request_id=view["id"],
    )


def read_form(
    view: View, request: EnvironmentRequest, config: EnvironmentConfig, profiles: Profiles = ()
) -> EnvironmentRequest:
    """Return the request with the form's values. Raises UserError, whose field is the input."""
    values = view["state"]["values"]
    options = {field: value_of(values[field]["value"]) for field in FIELDS if field in values}
    if options.get("profile") == ANY:
        del options["profile"]
    return with_options(request, options, config, profiles)


def errors_of(error: UserError) -> dict[str, str]:
    """Return the error below its input; the name's, if it is about none."""
    return {error.field if error.field in FIELDS else "name": str(error)}


def delete_home_form(home: str) -> View:
    """Build the modal in which the home's name is typed."""
    text = f"Deletes home {code(home)} and all its files. This can't be undone."
    blocks = [section(text), input_block("typed", f"Type {home} to confirm", text_box(home))]
    return form_modal("Delete home", blocks, DELETE_HOME_FORM, "Delete", home, "Keep the home")


def typed_home(view: View) -> str:
    """Return the home to delete. Raises UserError if its name wasn't typed."""
    home = checked_name(view["private_metadata"])
    if value_of(view["state"]["values"]["typed"]["value"]).strip() != home:
        raise UserError(f"Type {home} to delete this home.", field="typed")
    return home


def started(name: str, gpus: int, title: str = "Start environment") -> View:
    what = f" with {counted(gpus, 'GPU')}" if gpus else ""
    return modal(title, [section(f"Starting {code(name)}{what}… A message shows the progress.")])


def _menu(options: list[Option]) -> Block:
    menu: Block = {"type": "static_select", "action_id": "value", "options": options}
    return menu | {"initial_option": options[0]}
