"""The webhooks of new JobSets: defaults, and limits of names.

As in JobSet v0.12.0, pkg/webhooks/jobset_webhook.go.

A pod's name must have at most 63 characters with its random suffix, so a JobSet with the replicated Job
`node` has at most 48, and 47 from 11 pods on.
"""

import re
from collections.abc import Iterator

from local.kubernetes.apiserver.kinds import KINDS, Cause, Object, Refused, invalid
from local.kubernetes.apiserver.structural import NAME

HOOK = "vjobset.kb.io"
LONGEST = 63
TOO_LONG = "JobSet name is too long, {} names generated for this JobSet will exceed 63 characters"
NOT_LABEL = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    f"regex used for validation is '{NAME}')"
)


def reviewed(jobset: Object) -> Object:
    """Return the JobSet with its defaults. Raises Refused 422."""
    if "uid" in jobset["metadata"]:
        return jobset
    spec = jobset["spec"]
    spec.setdefault("successPolicy", {"operator": "All"})
    spec.setdefault("startupPolicy", {"startupPolicyOrder": "AnyOrder"})
    spec["network"] = {
        "enableDNSHostnames": True,
        "publishNotReadyAddresses": True,
        **spec.get("network", {}),
    }
    for replicated in spec["replicatedJobs"]:
        replicated["template"]["spec"].setdefault("completionMode", "Indexed")
        replicated["template"]["spec"]["template"]["spec"].setdefault("restartPolicy", "OnFailure")
    name, kind = jobset["metadata"]["name"], KINDS["JobSet"]
    if causes := [*_names(name, spec)]:
        refused = invalid(kind.group_kind, kind.details(name, kind.name), causes)
        message = f'admission webhook "{HOOK}" denied the request: {refused}'
        raise Refused(422, {**_body(refused), "message": message})
    return jobset


def _names(name: str, spec: Object) -> Iterator[Cause]:
    for index, replicated in enumerate(spec["replicatedJobs"]):
        path, last = f"spec.replicatedJobs[{index}].name", replicated["template"]["spec"]["completions"] - 1
        job = job_name(name, replicated["name"])
        for kind, longest in (("job", job), ("pod", f"{job}-{last}-abcde")):
            if len(longest) > LONGEST:
                yield Cause.value(path, job, TOO_LONG.format(kind))
            elif not re.fullmatch(NAME, longest):
                yield Cause.value(path, job, NOT_LABEL)


def job_name(jobset: str, replicated: str) -> str:
    """Return the name of a replicated Job's only replica."""
    return f"{jobset}-{replicated}-0"


def _body(refused: Refused) -> Object:
    body = refused.body
    return body if isinstance(body, dict) else {}
