"""The preview of a sweep, the form's second step, and its facts as the API and `sweepbot plan` show them:
trials, peak GPUs, GPU-hours, cost, budget, approval, place, notes. Pure.
"""

import json

from bot.core.plan import SweepPlan
from bot.core.request import SweepRequest
from bot.core.space import MetricSource, SearchSpace, command_line
from bot.platform.config.policy import Config
from bot.platform.slack.blocks import (
    Block,
    View,
    actions,
    button,
    context,
    fields,
    modal,
    plain_text,
    section,
)
from bot.platform.slack.mrkdwn import block, code, commit_text, plain
from bot.sweep.form.view import CHECK_AGAIN, EDIT, LAUNCH, Draft, metadata
from bot.sweep.launch.capacity import requested
from bot.sweep.launch.options import NOTIFY
from bot.sweep.results.warm_start import NONE, described
from bot.sweep.spaces.describe import first_values, launch_flags
from bot.sweep.spaces.space import combinations
from bot.text.number_format import hours, money
from bot.text.wording import counted, fitting, listed
from k8s.trial_kinds import JOB

MAX_NOTES_TEXT = 2_500  # characters of a section


def preview(
    draft: Draft,
    request: SweepRequest,
    plan: SweepPlan,
    config: Config,
    free: int | None = None,
    over: str = "",
) -> View:
    """Return the view with the Launch button. `free` and `over`: see `facts`."""
    space, commit = plan.space, commit_text(plan.commit, plan.subject)
    at = "" if plan.branches else f" @ {commit}"  # several are among the facts
    head = f"*{plain(request_name(request))}* on {code(request.branch)}{at}"
    title = "*First trial*" if space.algorithm == "grid" else "*Example trial* (actual values are sampled)"
    first = f"{title}\n{block(command_line(space, first_values(space), **launch_flags(space)))}"
    found = [*facts(request, plan, config, free, over), ("Notify", plain(NOTIFY[request.notify]))]
    return modal(
        "Review sweep",
        [
            section(head),
            *(fields(*found[at : at + 10]) for at in range(0, len(found), 10)),  # Slack's limit of a section
            section(first),
            *_notes(space),
            context("Nothing has started yet."),
            actions(button(EDIT, "Edit"), button(CHECK_AGAIN, "Refresh from git")),
        ],
        close="Cancel",
        callback_id=LAUNCH,
        submit=plain_text("Launch sweep"),
        private_metadata=metadata(draft, commit=plan.pinned),
    )


def previewed_commit(view: View) -> str | None:
    """Return the commit that the preview shows and Launch starts, even if the branch moves on."""
    found: str | None = json.loads(view["private_metadata"]).get("commit")
    return found


def request_name(request: SweepRequest) -> str:
    if request.seeds is not None:
        return request.name or f"Seeds {request.seeds}"
    return request.name or ("Inline space" if request.text is not None else request.space)


def facts(
    request: SweepRequest,
    plan: SweepPlan,
    config: Config,
    free: int | None = None,
    over: str = "",
) -> list[tuple[str, str]]:
    """Return what a sweep builds, runs, and costs, as labels and mrkdwn.

    Args:
        free: free GPUs in the plan's cluster now; None if unknown.
        over: why it must be approved, as a part of a sentence; "": it fits all budgets of a month.
    """
    space, peak = plan.space, plan.space.parallel * plan.trial_gpus
    now = "" if free is None else f"; {free} free now"
    nodes = f" × {plan.nodes} nodes" if plan.nodes > 1 else ""
    at_once = f"{'auto: up to ' if space.auto else ''}{counted(space.parallel, 'trial')}"
    image = f"Prebuilt: {code(space.image)}" if space.image else plain(plan.recipe)
    return [
        ("Trials", _trials(request, space)),
        *_branches(plan),
        *_past(request, space),
        *_machines(plan),
        *([("Trial kind", plan.trial_kind.kind)] if plan.trial_kind is not JOB else []),
        ("Peak GPUs", f"{peak} ({at_once}{nodes} × {counted(plan.gpus, 'GPU')}){now}"),
        ("GPU-hours", _cost(space.max_trials * plan.trial_gpus, space.trial_hours, config)),
        ("Goal", _goals(space)),
        ("Metrics", _metrics(space)),
        *_start(plan),
        *_approval(plan, config, over),
        ("Image", image),
        *_place(request, plan, config),
    ]


def _machines(plan: SweepPlan) -> list[tuple[str, str]]:
    """Return the profile, if any are configured, and what each trial requests."""
    what = "node" if plan.nodes > 1 else "trial"
    return [("Profile", f"{code(plan.profile)}: {requested(plan)} per {what}")] if plan.profile else []


def _start(plan: SweepPlan) -> list[tuple[str, str]]:
    """Return the facts about the gate, the time limit, and the budget, if the sweep has them."""
    space = plan.space
    others = "others" if space.auto else counted(space.max_trials - 1, "other trial")
    gate = [("Start", f"One trial first, and the {others} once it is healthy")] if space.gate else []
    limit = [("Time limit", f"{space.max_hours:g} h from the first trial's start")] if space.max_hours else []
    return gate + limit + _budget(plan)


def _budget(plan: SweepPlan) -> list[tuple[str, str]]:
    """Return the budget, and how many trials fit: for sure by the limit of a trial's time, else as usual."""
    budget, trials, longest = plan.budget, plan.space.max_trials, plan.space.trial_hours
    if budget is None:
        return []
    effect = "then no new trials start"
    if longest and trials * plan.trial_gpus * longest <= budget.gpu_hours:
        effect = "enough for all trials"
    elif budget.usual:
        effect = (
            f"about {min(trials, int(budget.gpu_hours / budget.usual))} of {counted(trials, 'trial')} fit"
        )
    return [("Budget", f"{plain(budget.text)}; {effect}")]


def _approval(plan: SweepPlan, config: Config, over: str) -> list[tuple[str, str]]:
    """Return the forecast that is checked against budgets, or why someone must approve the sweep."""
    if plan.forecast is None:
        return []
    if over:
        return [("Approval", f"Needed before the build: {plain(over)}")]
    number, price = plan.forecast.gpu_hours, plan.forecast.price
    cost = f" ({money(number * price, config.currency)})" if number and price else ""
    return [("Forecast", f"{hours(number or 0)} GPU-h{cost}; fits the budgets")]


def _place(request: SweepRequest, plan: SweepPlan, config: Config) -> list[tuple[str, str]]:
    """Return cluster, namespace, queue, and priority as one fact."""
    has_own = any(each.namespace for each in config.clusters)
    places = {
        "Cluster": _cluster(request, plan, config) if config.clusters else "",
        "Namespace": code(plan.experiment_ref.namespace) if config.namespaces or has_own else "",
        "Queue": code(plan.queue) if plan.queue else "",
        "Priority": plan.priority,
    }
    found = {name: value for name, value in places.items() if value}
    return [(listed(found).capitalize(), ", ".join(found.values()))] if found else []


def _cluster(request: SweepRequest, plan: SweepPlan, config: Config) -> str:
    """Return the plan's cluster, and why. `sweepbot plan`, which reads no cluster, can't choose one."""
    is_open = len(config.clusters) > 1 and not (request.cluster or plan.cluster_reason)
    why = "in these manifests; chosen at launch" if is_open else plain(plan.cluster_reason)
    return code(plan.cluster) + (f" ({why})" if why else "")


def _trials(request: SweepRequest, space: SearchSpace) -> str:
    if space.seed:
        return f"{space.max_trials:,}, one for each seed: {request.seeds}"
    if pairs := space.pairs:
        return (
            f"{space.max_trials:,}: {counted(pairs.settings, 'setting')} that the branches share, then pairs "
            f"of the two best branches: their {pairs.finals} best settings, with {code(pairs.seed)} from 1"
        )
    early = "" if space.early_stopping is None else "; medianstop stops poor ones early"
    if rule := space.stopping:
        would = "reports which poor ones it would stop early" if rule.dry_run else "stops poor ones early"
        early = f"; {rule.name} {would}"
    there = combinations(space.parameters)
    of_all = f" of {there:,} combinations" if there else ""
    settings = (f"{key}={value}" for key, value in space.settings.items())
    search = ", ".join([f"{space.algorithm} search", *settings])
    return f"{space.max_trials:,}{of_all}, {plain(search)}{early}"


def _branches(plan: SweepPlan) -> list[tuple[str, str]]:
    """Return the branches to compare with their commits; the space file is the first one's."""
    found = [f"{code(each.branch)} @ {commit_text(each.commit, each.subject)}" for each in plan.branches]
    return [("Branches", ", ".join(found))] if found else []


def _past(request: SweepRequest, space: SearchSpace) -> list[tuple[str, str]]:
    if space.warm_start:
        return [("Start from", described(space.warm_start))]
    return [("Start from", "chosen at launch")] if request.from_ not in {None, NONE} else []


def _notes(space: SearchSpace) -> list[Block]:
    lines = fitting((f"• {plain(note)}" for note in space.notes), MAX_NOTES_TEXT)
    return [section("\n".join(["*Notes*", *lines]))] if lines else []


def _metrics(space: SearchSpace) -> str:
    names = ", ".join(f"{code(name)} ({strategy})" for name, strategy in space.strategies.items())
    match space.source:
        case MetricSource.TENSORBOARD:
            return f"TensorBoard: {names}"
        case MetricSource.STDOUT:
            return f"Lines of the output: {names}"
        case MetricSource.FILE:
            return f"Lines of {code(space.metrics_path)}: {names}"
        case MetricSource.PUSH:
            return f"Pushed to Katib: {names}"


def _goals(space: SearchSpace) -> str:
    goals = listed(f"{goal} {code(metric)}" for metric, goal in space.objectives.items())
    until = f"; stop at {space.target:g}" if space.target is not None else ""
    return f"{goals[0].upper()}{goals[1:]}{until}"


def _cost(gpus: int, longest: float | None, config: Config) -> str:
    """Return the maximum GPU-hours and cost at the highest price; per hour without a time limit."""
    number = gpus * (longest or 1)
    known = f"Up to {number:,.10g}" if longest else f"No limit; {gpus:,} if each trial runs 1 h"
    dearest = max((price.hourly for price in config.prices), default=None)
    if dearest is None or not gpus:
        return known
    cost = money(number * dearest, config.currency)
    return f"{known} ({cost})" if longest else f"{known} (up to {cost})"
