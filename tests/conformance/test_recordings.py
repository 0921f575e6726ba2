"""The same requests as to a real kube-apiserver 1.36, and the same answers."""

import pytest

from tests.conformance.namespace import Place
from tests.conformance.replay import compare, put, recording

ON_AN_EMPTY_NAMESPACE = [
    "02-create-bad-ctype",
    "02-create-bad-json",
    "02-create-bad-label",
    "02-create-bad-name",
    "02-create-empty-body",
    "02-create-garbage-spec",
    "02-create-generateName",
    "02-create-missing-ns",
    "02-create-name-254",
    "02-create-no-kind",
    "02-create-no-name",
    "02-create-ns-mismatch",
    "02-create-strict-unknown-meta",
    "02-create-with-resourceversion-500",
    "02-create-with-status",
    "02-create-wrong-kind",
    "02-create-wrong-version",
    "02-delete-404",
    "02-delete-bad-policy",
    "02-list-bad-label",
    "02-list-field-unsupported",
    "02-list-missing-ns",
    "02-no-such-resource",
    "02-patch-404",
    "03-job-400-type",
    "03-job-422-label",
    "03-job-422-many",
    "03-job-422-name-64",
    "03-job-422-no-containers",
    "03-job-422-resources",
    "03-job-422-restart-always",
    "03-job-create",
    "03-job-delete-404",
    "03-job-emptybody-env-null",
    "03-job-env-number-400",
    "03-job-generateName",
    "03-job-get-404",
    "03-job-unknown-field-default",
    "03-job-unknown-field-ignore",
    "04-pod-log-404",
    "08-401-bad-token",
    "08-404-missing-ns-admin",
    "09-list-rv-future",
    "09-list-rv-invalid",
    "10-watch-rv-invalid",
]
ON_WHAT_IS_THERE = [
    "02-create-again-409",
    "02-create-while-terminating",
    "02-delete-background",
    "02-delete-precond-uid",
    "02-delete-terminating-again",
    "02-patch-merge-stale-rv",
    "02-patch-plain-json-415",
    "02-patch-strategic-415",
    "02-remove-finalizer",
    "03-job-create-again-409",
    "07-job-create-while-terminating",
    "07-job-delete-background",
]


def requests(names: list[str]) -> list[object]:
    """Those about Experiments were recorded without Katib's webhooks."""
    custom = pytest.mark.needs("custom")
    return [pytest.param(n, marks=[custom] if "kubeflow" in recording(n)["request"] else []) for n in names]


@pytest.mark.parametrize("name", requests(ON_AN_EMPTY_NAMESPACE))
async def test_responses_in_an_empty_namespace_equal_the_recordings(place: Place, name: str) -> None:
    await compare(place, name)


@pytest.mark.differs("continue tokens")
@pytest.mark.parametrize("name", ["09-page-continue-bad", "09-page-continue-and-rv"])
async def test_responses_to_unused_tokens_equal_the_recordings(place: Place, name: str) -> None:
    await compare(place, name)


@pytest.mark.parametrize("name", requests(ON_WHAT_IS_THERE))
async def test_responses_about_existing_objects_equal_the_recordings(place: Place, name: str) -> None:
    if "kubeflow" in recording(name)["request"]:
        await put(place, recording("02-create-again-409")["request_body"])
        await put(place, recording("02-create-yaml")["body"])
        await put(place, recording("02-delete-with-finalizer")["body"], deleted=True)
    else:
        job = recording("03-job-create")["request_body"]
        await put(place, job)
        await put(place, {**job, "metadata": {**job["metadata"], "name": "build-fg"}}, deleted=True)
    await compare(place, name)
