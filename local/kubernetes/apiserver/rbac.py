"""Authenticate bearer tokens and authorize with RBAC, with kube-apiserver 1.36's messages [08-*].

Subjects are users and service accounts. Groups and rules for non-resource URLs aren't supported.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web

from local.kubernetes.apiserver.kinds import Object, Refused, refusal
from local.kubernetes.apiserver.requests import address
from local.kubernetes.apiserver.store import Store

ADMIN = "system:admin"
ANONYMOUS = "system:anonymous"
ACCOUNT = "system:serviceaccount:"
PUBLIC = ("/healthz", "/livez", "/readyz", "/version")
# To all with a token: ClusterRole system:discovery (kubernetes.io/docs/reference/access-authn-authz/rbac).
DISCOVERY = re.compile("/apis?(/.*)?")
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
REVIEW = ("create", "authorization.k8s.io", "selfsubjectaccessreviews")


@dataclass(frozen=True)
class AccessRequest:
    """A user's request. Without a resource, `name` is a path such as /metrics."""

    user: str
    verb: str
    group: str
    resource: str  # pods, or pods/log
    namespace: str
    name: str

    def refused(self) -> Refused:
        who = f'User "{self.user}" cannot {self.verb}'
        if not self.resource:
            return refusal(403, f'forbidden: {who} path "{self.name}"', "Forbidden", {})
        kind = self.resource.partition("/")[0]
        what = (f"{kind}.{self.group}" if self.group else kind) + (f' "{self.name}"' if self.name else "")
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        how = f'{who} resource "{self.resource}" in API group "{self.group}" {where}'
        details = {"name": self.name, "group": self.group, "kind": kind}
        given = {key: value for key, value in details.items() if value}
        return refusal(403, f"{what} is forbidden: {how}", "Forbidden", given)


def user_of(request: web.Request, tokens: Mapping[str, str], store: Store) -> str:
    """Return the token's user. Raises Refused 401 for an unknown token or a deleted service account."""
    header = request.headers.get("Authorization")
    if header is None:
        return ANONYMOUS
    user = tokens.get(re.sub("^bearer ", "", header, flags=re.IGNORECASE), "")
    account = user.removeprefix(ACCOUNT).split(":")
    if not user or (user.startswith(ACCOUNT) and not store.get("ServiceAccount", *account)):
        raise refusal(401, "Unauthorized", "Unauthorized")
    return user


def access_request(user: str, request: web.Request) -> AccessRequest:
    at = address(request.path)
    if not at:
        return AccessRequest(user, request.method.lower(), "", "", "", request.path)
    reads = "get" if at.name else "watch" if request.query.get("watch") in ("1", "true") else "list"
    verbs = VERBS | {"GET": reads, "DELETE": "delete" if at.name else "deletecollection"}
    # A namespace is in itself: a Role can grant reading its own.
    namespace = at.namespace or (at.name if at.plural == "namespaces" else "")
    resource = f"{at.plural}/{at.subresource}" if at.subresource else at.plural
    return AccessRequest(user, verbs.get(request.method, ""), at.group, resource, namespace, at.name)


def why(access: AccessRequest, store: Store) -> str | None:
    """Return RBAC's reason to allow it; None if it is denied."""
    if access.user == ADMIN or (not access.resource and access.name.rstrip("/") in PUBLIC):
        return ""
    finds = not access.resource and access.verb == "get" and DISCOVERY.fullmatch(access.name)
    if access.user != ANONYMOUS and (finds or (access.verb, access.group, access.resource) == REVIEW):
        return ""
    bindings = [*store.peek("ClusterRoleBinding"), *store.peek("RoleBinding", access.namespace)]
    return next(filter(None, (_grant(binding, access, store) for binding in bindings)), None)


def _grant(binding: Object, access: AccessRequest, store: Store) -> str | None:
    ref, namespace = binding["roleRef"], binding["metadata"].get("namespace", "")
    role = store.get(ref["kind"], namespace, ref["name"]) or {}
    subject = next(filter(None, (_named(s, access.user) for s in binding.get("subjects", []))), None)
    if not subject or not any(_covers(rule, access) for rule in role.get("rules", [])):
        return None
    name = binding["metadata"]["name"] + (f"/{namespace}" if namespace else "")
    return f'RBAC: allowed by {binding["kind"]} "{name}" of {ref["kind"]} "{ref["name"]}" to {subject}'


def _named(subject: Object, user: str) -> str | None:
    kind, name, namespace = subject["kind"], subject["name"], subject.get("namespace")
    if kind == "ServiceAccount":
        return f'{kind} "{name}/{namespace}"' if user == f"{ACCOUNT}{namespace}:{name}" else None
    return f'{kind} "{name}"' if (kind, name) == ("User", user) else None


def _covers(rule: Object, access: AccessRequest) -> bool:
    wanted = {"verbs": access.verb, "apiGroups": access.group, "resources": access.resource}
    fits = all(not {one, "*"}.isdisjoint(rule.get(key, [])) for key, one in wanted.items())
    return fits and access.name in (rule.get("resourceNames") or [access.name])


def review(user: str, request: Object, store: Store) -> Object:
    """Return a completed SelfSubjectAccessReview."""
    what = request["spec"].get("resourceAttributes", {})
    resource = "/".join(filter(None, (what.get("resource"), what.get("subresource"))))
    verb, group, namespace, name = (what.get(key, "") for key in ("verb", "group", "namespace", "name"))
    found = why(AccessRequest(user, verb, group, resource, namespace, name), store)
    status = {"allowed": found is not None} | ({"reason": found} if found else {})
    return {**request, "metadata": {}, "status": status}
