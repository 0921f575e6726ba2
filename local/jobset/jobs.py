"""The Job and the headless Service of a JobSet. Pure.

As in JobSet v0.12.0, pkg/controllers/jobset_controller.go.
"""

import hashlib

from local.jobset.webhook import job_name
from local.kubernetes.apiserver.kinds import Object, clone
from local.kubernetes.apiserver.store import owner

PREFIX = "jobset.sigs.k8s.io"
NAME = f"{PREFIX}/jobset-name"


def job(jobset: Object, replicated: Object) -> Object:
    """Return the Job of the only replica; its pods' hostnames are its name and their number."""
    new: Object = clone(replicated["template"])
    marks, place = _marks(jobset, replicated), jobset["metadata"]
    spec = new["spec"] | {"suspend": jobset["spec"].get("suspend", False)}
    spec["template"]["metadata"] = _marked(spec["template"].get("metadata", {}), marks)
    spec["template"]["spec"]["subdomain"] = place["name"]
    meta = {**_marked(new.get("metadata", {}), marks), "name": job_name(place["name"], replicated["name"])}
    meta |= {"namespace": place["namespace"], "ownerReferences": [owner(jobset)]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def service(jobset: Object) -> Object:
    place = jobset["metadata"]
    meta = {"name": place["name"], "namespace": place["namespace"], "ownerReferences": [owner(jobset)]}
    spec = {
        "clusterIP": "None",
        "selector": {NAME: place["name"]},
        "publishNotReadyAddresses": jobset["spec"]["network"]["publishNotReadyAddresses"],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}


def _marked(meta: Object, marks: dict[str, str]) -> Object:
    kept = {key: meta[key] for key in ("labels", "annotations") if key in meta}
    return {key: kept.get(key, {}) | marks for key in ("labels", "annotations")}


def _marks(jobset: Object, replicated: Object) -> dict[str, str]:
    """Return what the Job and its pods get, as labels and as annotations."""
    meta = jobset["metadata"]
    full = f"{meta['namespace']}/{job_name(meta['name'], replicated['name'])}"
    found = {
        "jobset-name": meta["name"],
        "jobset-uid": meta["uid"],
        "replicatedjob-name": replicated["name"],
        "restart-attempt": "0",
        "replicatedjob-replicas": "1",
        "global-replicas": "1",
        "job-index": "0",
        "job-key": hashlib.sha1(full.encode(), usedforsecurity=False).hexdigest(),
        "job-global-index": "0",
        "group-name": replicated["groupName"],
        "group-replicas": "1",
        "job-group-index": "0",
    }
    return {f"{PREFIX}/{key}": value for key, value in found.items()}
