"""Serve discovery: groups, versions, and resources."""

from collections.abc import Sequence

from local.kubernetes.apiserver.kinds import Kind, Object, Refused

VERBS = ("create", "delete", "get", "list", "patch", "watch")
SHORT = {"pods": "po", "configmaps": "cm", "namespaces": "ns", "nodes": "no", "events": "ev"}


def discovered(path: str, kinds: Sequence[Kind]) -> Object:
    """Return the unaggregated discovery documents, which every kubectl reads. Raises Refused 404."""
    groups: dict[str, dict[str, None]] = {}
    for kind in kinds:
        groups.setdefault(kind.group, {})[kind.version] = None
    answers: dict[str, Object] = {"/api": {"kind": "APIVersions", "versions": [*groups.pop("")]}}
    listed = [_group(name, *sorted(versions)) for name, versions in groups.items()]
    answers["/apis"] = {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
    answers |= {f"/apis/{each['name']}": {"kind": "APIGroup", "apiVersion": "v1", **each} for each in listed}
    for kind in kinds:
        at = f"/apis/{kind.api_version}" if kind.group else "/api/v1"
        known: Object = {"kind": "APIResourceList", "groupVersion": kind.api_version, "resources": []}
        answers.setdefault(at, known)["resources"] += _resources(kind)
    if path.rstrip("/") not in answers:
        raise Refused(404, "404 page not found\n")
    return answers[path.rstrip("/")]


def _group(name: str, *versions: str) -> Object:
    """Return a group; the stable version, which sorts first here, is the preferred one."""
    each = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": each, "preferredVersion": each[0]}


def _resources(kind: Kind) -> list[Object]:
    one: Object = {"name": kind.plural, "singularName": kind.name.lower(), "kind": kind.name}
    one |= {"namespaced": kind.namespaced, "verbs": [*VERBS]}
    if short := SHORT.get(kind.plural):
        one["shortNames"] = [short]
    status = {**one, "name": f"{kind.plural}/status", "singularName": "", "verbs": ["get", "patch"]}
    log = {**one, "name": "pods/log", "singularName": "", "verbs": ["get"]}
    return [one, *([status] if kind.has_status else []), *([log] if kind.name == "Pod" else [])]
