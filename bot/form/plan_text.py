"""A plan as text for a terminal: a summary in YAML comments, then manifests that kubectl can read. Pure."""

from collections.abc import Iterable, Iterator

import yaml

from bot.config.policy import Config
from bot.core.plan import SweepPlan
from bot.core.request import SweepRequest
from bot.form.preview import facts, request_name
from bot.slack.mrkdwn import SHORT_COMMIT
from bot.text.terminal import without_markup
from bot.text.wording import counted, printable
from k8s.objects import Manifest

LABEL_WIDTH = 12  # characters, `GPU-hours:` and `Time limit:` included; few labels are longer


def plan_text(
    request: SweepRequest, plan: SweepPlan, config: Config, manifests: Iterable[tuple[str, Manifest]]
) -> str:
    """Return the summary and the manifests, each below a comment that says what it is for.

    Args:
        manifests: in order, each with its comment.
    """
    documents = [f"# {printable(comment)}\n{_dumped(manifest)}" for comment, manifest in manifests]
    separator = "---\n"
    return f"{summary(request, plan, config)}\n\n{separator.join(documents)}"


def summary(request: SweepRequest, plan: SweepPlan, config: Config) -> str:
    """Return the lines of the summary. Every line is a comment, whatever a name or a commit's subject has."""
    return "\n".join(f"# {printable(line)}" for line in _lines(request, plan, config))


def _lines(request: SweepRequest, plan: SweepPlan, config: Config) -> Iterator[str]:
    commit = f"{plan.commit[:SHORT_COMMIT]} {plan.subject}".strip()
    yield f"{request_name(request)} on {request.branch} @ {commit}"
    for label, value in [*facts(request, plan, config), *_builds(plan)]:
        yield f"{label + ':':<{LABEL_WIDTH}} {without_markup(value)}"
    yield from (f"Note: {note}" for note in plan.space.notes)


def _builds(plan: SweepPlan) -> Iterator[tuple[str, str]]:
    if plan.builds:
        yield "Builds", f"{counted(len(plan.builds), 'Job')}; the image is {plan.image_by_digest}"


def gate_comment(plan: SweepPlan) -> str:
    """Explain the counts of the experiment's manifest, which the gate changes after the first trial."""
    space, created = plan.space, "The experiment, created when the image is built."
    if not space.gate:
        return created
    return (
        f"{created} It starts with maxTrialCount: 1, for the first trial. When that trial is healthy, "
        f"Sweepbot sets maxTrialCount: {space.max_trials}, parallelTrialCount: {space.parallel}, and "
        f"maxFailedTrialCount: {space.max_failed}."
    )


class _Plain(yaml.SafeDumper):
    """Write shared values twice instead of with anchors."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


def _dumped(manifest: Manifest) -> str:
    return str(yaml.dump(manifest, Dumper=_Plain, sort_keys=False, width=1000))
