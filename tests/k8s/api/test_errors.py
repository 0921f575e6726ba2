"""What an error response means for a retry."""

from k8s.api.errors import ApiError
from tests.cases import cases

KINDS = ("absent", "exists", "stale", "expired", "throttled", "outage", "denied", "permanent")


@cases(
    ("error", "kinds"),
    [
        (ApiError(400, "BadRequest", "a webhook denied it"), {"permanent"}),
        (ApiError(403, "Forbidden", "exceeded quota"), {"permanent"}),
        (
            ApiError(403, "Forbidden", 'jobs is forbidden: User "x" cannot create resource "jobs"'),
            {"denied", "permanent"},
        ),
        (ApiError(404, "NotFound", "pods x not found"), {"absent", "permanent"}),
        (ApiError(404, "", "404 page not found"), {"permanent"}),  # the kind isn't installed
        (ApiError(409, "AlreadyExists", "jobs x already exists"), {"exists"}),
        (ApiError(409, "AlreadyExists", "object is being deleted: jobs x already exists"), set()),
        (ApiError(409, "Conflict", "the object has been modified"), {"stale"}),
        (ApiError(410, "Expired", "too old resource version"), {"expired"}),
        (ApiError(413, "", "limit is 3145728"), {"permanent"}),
        (ApiError(422, "Invalid", "spec is invalid"), {"permanent"}),
        (ApiError(429, "TooManyRequests", "retry", wait=1), {"throttled"}),
        (ApiError(429, "TooManyRequests", "violates a disruption budget"), set()),
        (ApiError(500, "InternalError", "etcd"), {"outage"}),
        (ApiError(503, "", "unavailable", wait=1), {"outage"}),
    ],
)
def test_error_is_of_its_kinds_only(error, kinds):
    assert {kind for kind in KINDS if getattr(error, kind)} == kinds


def test_error_text_has_status_and_reason():
    assert str(ApiError(403, "Forbidden", "no")) == "no (403 Forbidden)"
    assert str(ApiError(404, "", "no")) == "no (404)"
    said = "the API server rejects Sweepbot's credentials: Unauthorized (401 Unauthorized)"
    assert str(ApiError(401, "Unauthorized", "Unauthorized")) == said
