"""The modals to start an environment and to delete a home. Pure."""

from typing import Any

from bot.config.environment_keys import MAX_CHOICES, checked_name
from bot.config.environments import EnvironmentConfig
from bot.core.errors import UserError
from bot.environments.command_line import Profiles, with_options
from bot.environments.requests import EnvironmentRequest, Verb
from bot.slack.blocks import Block, Option, View, context, modal, option, plain_text, section
from bot.slack.inputs import input_block, text_box, user_name, value_of, where_shown
from bot.slack.mrkdwn import code
from bot.text.wording import counted

FORM, DELETE_HOME_FORM = "start_environment_form", "delete_home_form"  # callback ids
FIELDS = ("name", "image", "gpus", "profile", "size", "home")
ANY = "-"  # no profile has this name
MAX_GPUS = 64  # choices


def form(channel: str, config: EnvironmentConfig, profiles: Profiles = (), error: str = "") -> View:
    images = [option(each.name, each.image.rpartition("/")[2]) for each in config.images]
    sizes = [option(each.name, f"CPU {each.cpu}, memory {each.memory}") for each in config.sizes]
    gpus = [option(str(n)) for n in range(min(config.limits.gpus, MAX_GPUS) + 1)]
    machines = [option(ANY, text="Any machine"), *(option(each.name) for each in profiles)][:MAX_CHOICES]
    keeps = "The home survives stop and delete; packages installed outside it and processes don't."
    blocks = [
        *([section(f":warning: {error}")] if error else []),
        input_block(
            "name",
            "Name",
            text_box("Lowercase letters, digits, dashes; default: a generated name"),
            optional=True,
        ),
        input_block("image", "Image", _menu(images)),
        input_block("gpus", "GPUs", _menu(gpus)),
        *([input_block("profile", "Profile", _menu(machines))] if profiles else []),
        input_block("size", "Size", _menu(sizes)),
        input_block(
            "home", "Home", text_box(f"Size of a new home ({config.home}), or a home's name"), optional=True
        ),
        context(f"{keeps} {where_shown('environment', channel)}"),
    ]
    return modal(
        "Start environment",
        blocks,
        close="Cancel",
        callback_id=FORM,
        submit=plain_text("Start"),
        private_metadata=channel,
    )


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
    return modal(
        "Delete home",
        [section(text), input_block("typed", f"Type {home} to confirm", text_box(home))],
        close="Keep the home",
        callback_id=DELETE_HOME_FORM,
        submit=plain_text("Delete"),
        private_metadata=home,
    )


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
