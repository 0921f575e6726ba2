"""Build the texts about trials that Sweepbot stopped early, or in a dry run would have. Pure."""

from bot.core.events import Event
from bot.core.plan import SweepPlan
from bot.core.record import SweepRecord
from bot.core.space import MetricSource
from bot.core.stopping import ASHA, EarlyStop
from bot.slack.mrkdwn import code, plain
from bot.text.wording import counted, fitting

MAX_TEXT = 2_500  # characters


def stopped_line(plan: SweepPlan, trial: str, stop: EarlyStop, usual: float | None) -> str:
    """Return why a trial is stopped, and the saved GPU-hours if finished trials show the usual run time."""
    rule, metric = plan.space.stopping, plan.space.metric
    value = "no finite value" if stop.value is None else f"{stop.value:.4g}"
    cutoff = "" if stop.cutoff is None else f"{stop.cutoff:.4g}, "
    among = f"the median of {stop.others} trials"
    if rule and rule.name == ASHA:
        among = f"the cutoff for the best 1/{rule.factor} of {stop.others + 1} trials"
    hours = max(0.0, (usual or 0.0) - stop.seconds) * plan.trial_gpus / 3600
    saved = f"; about {hours:.1f} GPU-hours saved" if hours >= 0.05 else ""
    return f"{trial}: {metric} {value} at step {stop.step:,}, worse than {cutoff}{among}{saved}"


def stopped_text(sweep: SweepRecord, event: Event) -> str:
    rule = sweep.plan.space.stopping if sweep.plan else None
    trials = counted(event.more + 1, "trial")
    lines = "\n".join(fitting((f"• {plain(line)}" for line in event.text.splitlines()), MAX_TEXT))
    if rule and rule.dry_run:
        return f":no_entry_sign: Dry run: {rule.name} would have stopped {trials} early.\n{lines}"
    gpus = "Its GPUs are" if event.more == 0 else "Their GPUs are"
    name = rule.name if rule else "early stopping"
    return f":no_entry_sign: Sweepbot stopped {trials} early ({name}). {gpus} free.\n{lines}"


def not_judged_text(sweep: SweepRecord) -> str:
    space = sweep.plan.space if sweep.plan else None
    rule, metric = (space.stopping.name, space.metric) if space and space.stopping else ("", "")
    if space and space.source is MetricSource.STDOUT:
        return (
            f":warning: {rule} can't stop trials: a trial has finished, and no line of its output has the "
            f"metric {code(metric)}. *Fix:* Print it while training: `{metric}=0.1`."
        )
    return (
        f":warning: {rule} can't stop trials: a trial has finished, and no run in MLflow has the metric "
        f'{code(metric)}. *Fix:* Log it while training: `mlflow.log_metric("{metric}", value, step=step)`.'
    )


def savings(sweep: SweepRecord) -> str:
    """Return the GPU-hours that early stopping has saved so far; "" without a stopped trial."""
    rule = sweep.plan.space.stopping if sweep.plan else None
    if rule is None or not sweep.ended_early:
        return ""
    hours = f"about {sweep.saved_gpu_hours:,.1f} GPU-hours" if sweep.saved_gpu_hours else ""
    if not rule.dry_run:
        return f"Early stopping ({rule.name}) saved {hours}" if hours else ""
    best = sweep.progress.best
    which = ", including the best one" if best and best.trial in sweep.ended_early else ""
    saved = f", and saved {hours}" if hours else ""
    return f"Dry run: {rule.name} would have stopped {counted(len(sweep.ended_early), 'trial')}{which}{saved}"
