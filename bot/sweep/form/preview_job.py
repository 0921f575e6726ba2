"""Job for a submitted form: read the repository and show the preview, or the errors, in its view."""

import logging
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from bot.core.errors import UserError
from bot.core.ids import candidates
from bot.core.request import Requester
from bot.measure.gpus.models import Snapshot
from bot.measure.gpus.snapshot_store import SnapshotStore
from bot.platform.config.permissions import size_denial
from bot.platform.config.policy import repository
from bot.platform.config.teams import prices_for, team_of
from bot.platform.repos.git import GitUnavailableError
from bot.platform.runtime.parser_thread import run_in_parser_thread
from bot.platform.slack.blocks import View
from bot.platform.slack.client import MessageRejectedError
from bot.platform.slack.mrkdwn import plain
from bot.sweep.clients import SweepClients
from bot.sweep.form.drafts import Drafts, SubmittedForm
from bot.sweep.form.preview import preview
from bot.sweep.form.view import errors_by_field, form
from bot.sweep.launch.budget import with_budget
from bot.sweep.launch.clusters import check_capacity, check_trial_kind, with_cluster
from bot.sweep.launch.plan import plan
from bot.sweep.launch.pods import namespace_of
from bot.sweep.launch.resolve import look_up
from bot.sweep.launch.spending import allowances, with_forecast
from bot.sweep.launch.user_limits import limited_sweeps, other_peaks
from bot.sweep.results.store import ResultsStore
from bot.sweep.results.usual import usual_gpu_hours
from bot.sweep.results.warm_start import with_past
from k8s.api.errors import ApiError, UnreachableError

log = logging.getLogger(__name__)

SNAPSHOT_MAX_AGE = timedelta(minutes=5)  # older GPU snapshots are ignored


async def show(view_id: str, clients: SweepClients, drafts: Drafts, known: SnapshotStore) -> None:
    """Update the view. Idempotent: nothing is created."""
    filled = await drafts.get(view_id)
    if filled and not filled.left:
        try:
            view = await _view(view_id, filled, clients, await _recent(known, clients.now()))
            if await drafts.get(view_id) == filled:  # git takes seconds
                await clients.slack.update_view(view_id, view)
        except MessageRejectedError as error:  # permanent: the view stays as it is
            log.warning("Slack rejected a preview: %s", error)


async def _recent(known: SnapshotStore, now: datetime) -> Snapshot | None:
    seen = await known.latest()
    return seen if seen and now - seen.at < SNAPSHOT_MAX_AGE else None


async def _view(view_id: str, filled: SubmittedForm, clients: SweepClients, seen: Snapshot | None) -> View:
    request, draft, config = filled.request, filled.draft, clients.config
    try:
        order = await look_up(
            clients.git,
            repository(request.repo, config, draft.channel),
            request,
            config,
            sweep=next(candidates(request.name or request.space, view_id)),
            owner=filled.user,
            request_id=view_id,
        )
        kept = ResultsStore(clients.cluster, clients.settings.k8s_namespace)
        past = await with_past(order.space, request, order.source.repository.url, kept)
        order = replace(order, space=past)
        home = namespace_of(filled.user, draft.channel, config)
        order = await with_cluster(with_budget(replace(order, namespace=home), config), clients)
        made = await run_in_parser_thread(plan, order, clients.settings)
        requester = Requester(user=filled.user, user_name=filled.user_name, channel=draft.channel)
        made = await with_forecast(made, order.price, requester, clients)
        with suppress(ApiError, UnreachableError):  # the launch checks it, too
            await check_trial_kind(made, clients.of(made.cluster))
            await check_capacity(order, made, clients.of(made.cluster))
    except UserError as error:
        return form(draft, config, errors_by_field(error, draft))
    except GitUnavailableError as error:
        return form(draft, config, {"": f"The git host isn't responding. Try again. ({plain(str(error))})"})
    others = other_peaks(filled.user, await limited_sweeps(filled.user, clients))
    if refusal := size_denial(filled.user, made, config, others):
        return form(draft, config, {"parallel": refusal})
    team = team_of(config.teams, "", filled.user)
    free = seen.free_in(made.cluster) if seen else None
    usual = await usual_gpu_hours(made, kept) if made.budget else None
    forecast, over = made.forecast, ""
    if forecast:
        refusals = [each.refusal(forecast) for each in await allowances(requester, clients)]
        over = next(filter(None, refusals), "")
    shown = replace(config, prices=prices_for(config.prices, team))
    return preview(draft, request, made, shown, free, usual, over)
