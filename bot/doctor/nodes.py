"""Check that the cluster can run trials on several machines (`nodes=`). Pure."""

import re

from bot.config.policy import Config
from bot.doctor.findings import Finding, warning
from k8s.trial_kinds import JOB

CHECK = "several nodes"
INDEX_LABEL_SINCE = (1, 28)  # the label of a pod's number, by which workers get their rank
SUCCESS_POLICY_SINCE = (1, 31)  # enabled by default


def several_nodes(version: str, config: Config) -> list[Finding]:
    """Return no findings if the version is new enough, or no Job can have several nodes.

    `version`: as the API server reports it, such as `v1.36.2`.
    """
    found = re.match(r"v?(\d{1,4})\.(\d{1,4})", version)
    if config.limits.nodes_per_trial == 1 or config.trials.multi_node is not JOB or found is None:
        return []
    known = int(found[1]), int(found[2])
    if known < INDEX_LABEL_SINCE:
        text = f"nodes= needs Kubernetes 1.28 or newer; found {version}"
        return [
            warning(CHECK, text, "upgrade Kubernetes, or set limits.nodes_per_trial: 1 in SWEEPBOT_CONFIG")
        ]
    if known < SUCCESS_POLICY_SINCE:
        text = (
            f"before Kubernetes 1.31, a trial with nodes= ends only when all its workers end; found {version}"
        )
        return [
            warning(CHECK, text, "upgrade Kubernetes, or let all workers of a training end with the first")
        ]
    return []
