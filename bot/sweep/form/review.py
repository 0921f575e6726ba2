"""Make the plan of a request without launching it, as the form's preview and the HTTP API show it."""

import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from bot.core.errors import UserError
from bot.core.ids import candidates
from bot.core.plan import SweepPlan
from bot.core.request import Requester, SweepRequest
from bot.measure.gpus.snapshot_store import SnapshotStore
from bot.platform.config.permissions import size_denial
from bot.platform.config.policy import Config, repository
from bot.platform.config.teams import prices_for, team_of
from bot.platform.repos.git_commands import GitUnavailableError
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
from bot.sweep.results.warm_start import with_past
from k8s.api.errors import ApiError, UnreachableError

SNAPSHOT_MAX_AGE = timedelta(minutes=5)  # older GPU snapshots are ignored


@dataclass(frozen=True, kw_only=True)
class Review:
    plan: SweepPlan
    config: Config  # with the prices that the person's team pays
    free: int | None  # free GPUs in the plan's cluster now; None: unknown
    refusal: str  # why the person can't run it; "" if allowed
    over: str  # why it would wait for approval; "" if it fits


async def review(
    request: SweepRequest, requester: Requester, request_id: str, clients: SweepClients, known: SnapshotStore
) -> Review:
    """Create nothing. Raises UserError and GitUnavailableError."""
    config, user, channel = clients.config, requester.user, requester.channel
    order = await look_up(
        clients.git,
        repository(request.repo, config, channel),
        request,
        config,
        sweep=next(candidates(request.name or request.space, request_id)),
        owner=user,
        request_id=request_id,
    )
    kept = clients.kept_results
    past = await with_past(order.space, request, order.source.repository.url, kept)
    home = namespace_of(user, channel, config)
    order = replace(order, space=past, namespace=home)
    order = await with_cluster(with_budget(order, config), clients)
    made = await run_in_parser_thread(plan, order, clients.settings)
    made = await with_forecast(made, order.price, requester, clients)
    with suppress(ApiError, UnreachableError):  # the launch checks it, too
        await check_trial_kind(made, clients.of(made.cluster))
        await check_capacity(order, made, clients.of(made.cluster))
    others = other_peaks(user, await limited_sweeps(user, clients))
    seen = await known.latest()
    is_recent = seen and clients.now() - seen.at < SNAPSHOT_MAX_AGE
    team = team_of(config.teams, "", user)
    forecast = made.forecast
    above = [each.refusal(forecast) for each in await allowances(requester, clients)] if forecast else []
    return Review(
        plan=made,
        config=replace(config, prices=prices_for(config.prices, team)),
        free=seen.free_in(made.cluster) if seen and is_recent else None,
        refusal=size_denial(user, made, config, others),
        over=next(filter(None, above), ""),
    )


log = logging.getLogger(__name__)


async def show_review(view_id: str, clients: SweepClients, drafts: Drafts, known: SnapshotStore) -> None:
    """Show a submitted form's preview, or the errors, in its view. Idempotent: nothing is created."""
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
