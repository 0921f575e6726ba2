"""Job for a submitted form: read the repository and show the preview, or the errors, in its view."""

import logging

from bot.core.errors import UserError
from bot.core.request import Requester
from bot.measure.gpus.snapshot_store import SnapshotStore
from bot.platform.repos.git_commands import GitUnavailableError
from bot.platform.slack.blocks import View
from bot.platform.slack.client import MessageRejectedError
from bot.platform.slack.mrkdwn import plain
from bot.sweep.clients import SweepClients
from bot.sweep.form.drafts import Drafts, SubmittedForm
from bot.sweep.form.preview import preview
from bot.sweep.form.review import review
from bot.sweep.form.view import errors_by_field, form

log = logging.getLogger(__name__)


async def show(view_id: str, clients: SweepClients, drafts: Drafts, known: SnapshotStore) -> None:
    """Update the view. Idempotent: nothing is created."""
    filled = await drafts.get(view_id)
    if filled and not filled.left:
        try:
            view = await _view(view_id, filled, clients, known)
            if await drafts.get(view_id) == filled:  # git takes seconds
                await clients.slack.update_view(view_id, view)
        except MessageRejectedError as error:  # permanent: the view stays as it is
            log.warning("Slack rejected a preview: %s", error)


async def _view(view_id: str, filled: SubmittedForm, clients: SweepClients, known: SnapshotStore) -> View:
    request, draft, config = filled.request, filled.draft, clients.config
    try:
        requester = Requester(user=filled.user, user_name=filled.user_name, channel=draft.channel)
        found = await review(request, requester, view_id, clients, known)
    except UserError as error:
        return form(draft, config, errors_by_field(error, draft))
    except GitUnavailableError as error:
        return form(draft, config, {"": f"The git host isn't responding. Try again. ({plain(str(error))})"})
    if found.refusal:
        return form(draft, config, {"parallel": found.refusal})
    return preview(draft, request, found.plan, found.config, found.free, found.over)
