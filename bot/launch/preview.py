"""What a sweep would be, before it starts: the second step of the form. Pure."""

import json

from bot.config.policy import Config
from bot.core.numbers import money
from bot.core.plan import SweepPlan
from bot.core.request import SweepRequest
from bot.core.space import Parameter, SearchSpace, command_line
from bot.core.wording import counted
from bot.launch.form import AGAIN, CHANGE, LAUNCH, TOLD, Draft, metadata
from bot.launch.space import combinations
from bot.slack.blocks import View, actions, button, context, fields, modal, plain_text, section
from bot.slack.mrkdwn import block, code, plain


def preview(
    draft: Draft, request: SweepRequest, plan: SweepPlan, config: Config, free: int | None = None
) -> View:
    """With Launch below it. `free`: GPUs at the moment, None when that is not known."""
    space, subject = plan.space, plain(plan.subject[:120])
    head = f"*{plain(_name(request))}* on {code(request.branch)} at {code(plan.commit[:8])} “{subject}”"
    first = f"*The first trial*{_such_as(space)}\n{block(command_line(space, first_values(space)))}"
    return modal(
        "What will happen",
        [
            section(head),
            fields(*_facts(request, plan, config, free)),
            section(first),
            context("Nothing has been started yet."),
            actions(button(CHANGE, "Change something"), button(AGAIN, "Look at the branch again")),
        ],
        close="Cancel",
        callback_id=LAUNCH,
        submit=plain_text("Launch"),
        private_metadata=metadata(draft, commit=plan.commit),
    )


def previewed(view: View) -> str | None:
    """The commit that it shows, which Launch is about, whatever becomes of the branch meanwhile."""
    found: str | None = json.loads(view["private_metadata"]).get("commit")
    return found


def _name(request: SweepRequest) -> str:
    return request.name or ("A space of your own" if request.text is not None else request.space)


def _facts(request: SweepRequest, plan: SweepPlan, config: Config, free: int | None) -> list[tuple[str, str]]:
    space, peak = plan.space, plan.space.parallel * plan.gpus
    now = "" if free is None else f"; {free} {'is' if free == 1 else 'are'} free now"
    image = f"a ready one, {code(space.image)}" if space.image else plain(plan.recipe)
    return [
        ("Trials", f"{counted(space.max_trials, 'trial')}{_of_all(space)}, {plain(_searched(space))}"),
        ("GPUs at the peak", f"{peak}: {counted(space.parallel, 'trial')} with {plan.gpus} each{now}"),
        ("GPU-hours", _cost(space.max_trials * plan.gpus, space.trial_hours, config)),
        ("Goal", f"{space.goal} {code(space.metric)}{_until(space)}"),
        ("Image", image),
        *([("Namespace", code(plan.experiment_ref.namespace))] if config.namespaces else []),
        ("Told", plain(TOLD[request.notify])),
    ]


def _of_all(space: SearchSpace) -> str:
    there = combinations(space)
    return f" of {counted(there, 'combination')}" if there else ""


def _searched(space: SearchSpace) -> str:
    return ", ".join([space.algorithm, *(f"{key}={value}" for key, value in space.settings.items())])


def _until(space: SearchSpace) -> str:
    return f" until {space.target:g}" if space.target is not None else ""


def _cost(gpus: int, longest: float | None, config: Config) -> str:
    """At most, at the dearest price; for each hour, where nothing says how long a trial may take."""
    number = gpus * (longest or 1)
    hours = f"{number:,.10g} at most" if longest else f"{gpus} for each hour that a trial takes"
    dearest = max((price.hourly for price in config.prices), default=None)
    if dearest is None or not gpus:
        return hours
    return f"{hours}, which costs at most {money(number * dearest, config.currency)}"


def first_values(space: SearchSpace) -> dict[str, str]:
    """Of the first trial in a grid; in any other search of one that may come."""
    return {parameter.name: _first(parameter) for parameter in space.parameters}


def _first(parameter: Parameter) -> str:
    return parameter.values[0] if parameter.values else f"{parameter.min}"


def _such_as(space: SearchSpace) -> str:
    return "" if space.algorithm == "grid" else ", with values drawn in place of these"
