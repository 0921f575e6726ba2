"""Which kinds of objects the watches of sweeps follow."""

from bot.config.policy import Config
from k8s.trial_kinds import JOB

WATCHED_BUILD_KINDS = ("Pod", JOB.kind)  # in the namespace of builds
WATCHED_KINDS = (*WATCHED_BUILD_KINDS, "Experiment", "Trial")


def watched_in_trials(config: Config) -> tuple[str, ...]:
    """Return the kinds in each namespace of trials.

    Those that only an earlier configuration used aren't watched: their sweeps are woken by pods and trials.
    """
    return tuple(dict.fromkeys((*WATCHED_KINDS, config.trials.multi_node.kind)))
