"""How the client reads a server's errors, and requests that the local server doesn't support."""

from typing import Any

import pytest

from bot.platform.storage.sweep_configmap import config_map
from k8s.api import paths
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError
from k8s.objects import Manifest
from tests.bot.factories import PLAN, a_sweep
from tests.conformance.namespace import ABSENT_USER, Place, containers

WORDS = ("absent", "exists", "stale", "expired", "permanent")


async def refused(doing: Any) -> tuple[int, str, set[str]]:
    """Code, reason, and as what the client reads it."""
    with pytest.raises(ApiError) as caught:
        await doing
    return caught.value.status, caught.value.reason, {word for word in WORDS if getattr(caught.value, word)}


async def test_server_reports_its_version(place: Place) -> None:
    assert (await place.cluster.version()).startswith("v1.")


async def test_unknown_kind_is_a_404_in_plain_text(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(paths.KINDS, "Nothing", ("sweepbot.example.com/v1", "nothings"))
    with pytest.raises(ApiError, match=r"doesn't serve sweepbot\.example\.com/v1/.*is it installed"):
        await place.cluster.list("Nothing", place.namespace)
    assert await refused(place.cluster.get(place.ref("Nothing", "x"))) == (404, "", {"permanent"})
    answer = await place.http.send("GET", place.path("Nothing"))
    assert (answer.status, answer.body) == (404, "404 page not found\n")


async def test_missing_namespace_lists_nothing_and_accepts_nothing(place: Place) -> None:
    nowhere = Place(f"{place.namespace}-not", place.cluster, place.http)
    assert await place.cluster.list("ConfigMap", nowhere.namespace) == []
    assert await place.cluster.get(nowhere.ref("ConfigMap", "sweep-lr")) is None
    verdict = await refused(place.cluster.create(nowhere.a_map()))
    assert verdict == (404, "NotFound", {"absent", "permanent"})


async def test_existing_object_is_a_conflict(place: Place) -> None:
    made = await place.cluster.create(place.a_map())
    assert await refused(place.cluster.create(place.a_map())) == (409, "AlreadyExists", {"exists"})
    assert await place.cluster.get(place.ref("ConfigMap", "sweep-lr")) == made


async def test_terminating_object_still_exists(place: Place) -> None:
    ref = place.ref("ConfigMap", "sweep-lr")
    await place.cluster.create(place.a_map())
    await place.hold(ref)
    answer = await place.http.send("DELETE", place.path("ConfigMap", "sweep-lr"))
    assert "deletionTimestamp" in answer.body["metadata"], "DELETE returns the object, not a Status"
    assert await place.cluster.delete(ref)
    held = await place.cluster.get(ref)
    assert held
    assert "deletionTimestamp" in held["metadata"]
    with pytest.raises(ApiError, match=r"object is being deleted: .* already exists"):
        await place.cluster.create(place.a_map())
    assert await refused(place.cluster.create(place.a_map())) == (409, "AlreadyExists", set())


async def test_patch_of_an_old_version_is_a_conflict(place: Place) -> None:
    ref, made = place.ref("ConfigMap", "sweep-lr"), await place.cluster.create(place.a_map())
    merged = await place.cluster.merge(ref, {"data": {"phase": None, "best": "0.1"}})
    assert merged["data"] == {"best": "0.1"}
    version = {"resourceVersion": made["metadata"]["resourceVersion"]}
    assert await refused(place.cluster.merge(ref, {"metadata": version})) == (409, "Conflict", {"stale"})
    absent = place.cluster.merge(place.ref("ConfigMap", "another"), {"data": {}})
    assert await refused(absent) == (404, "NotFound", {"absent", "permanent"})


async def test_delete_with_uid_deletes_only_that_object(place: Place) -> None:
    ref, made = place.ref("ConfigMap", "sweep-lr"), await place.cluster.create(place.a_map())
    assert not await place.cluster.delete(ref, uid="00000000-0000-0000-0000-000000000000")
    assert await place.cluster.get(ref) == made
    assert await place.cluster.delete(ref, uid=made["metadata"]["uid"])
    assert await place.cluster.get(ref) is None
    assert not await place.cluster.delete(ref)


async def test_invalid_manifest_is_rejected_with_its_field(place: Place) -> None:
    job = place.a_job()
    job["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    assert await refused(place.cluster.create(job)) == (422, "Invalid", {"permanent"})
    with pytest.raises(ApiError, match=r'spec.template.spec.restartPolicy.*"OnFailure", "Never"'):
        await place.cluster.create(job)


async def test_unknown_field_is_dropped_with_a_warning(place: Place) -> None:
    job = place.a_job(backofLimit=3, suspend=True)
    answer = await place.http.send("POST", place.path("Job"), job)
    assert (answer.status, answer.warning) == (201, '299 - "unknown field \\"spec.backofLimit\\""')
    assert "backofLimit" not in answer.body["spec"]


@pytest.mark.needs("custom")
async def test_manifests_of_the_bot_have_no_unknown_field(place: Place) -> None:
    """Strictly checked, and the trial's Job as well, which Katib will make."""
    trial = PLAN.experiment["spec"]["trialTemplate"]["trialSpec"]
    job = {**trial, "metadata": {**trial["metadata"], "name": "trial"}}
    for manifest in (config_map(a_sweep()), PLAN.builds[0].job, PLAN.experiment, job):
        answer = await place.http.send(
            "POST", f"{place.path(manifest['kind'])}?fieldValidation=Strict", unscheduled(manifest, place)
        )
        assert (answer.status, answer.warning) == (201, None), answer.body


def unscheduled(manifest: Manifest, place: Place) -> Manifest:
    """The same in this namespace, for no real node."""
    made = {**manifest, "metadata": {**manifest["metadata"], "namespace": place.namespace}}
    if made["kind"] == "Job":
        template = made["spec"]["template"]
        pod = {**template["spec"], "schedulerName": ABSENT_USER}
        made["spec"] = {**made["spec"], "template": {**template, "spec": pod}}
    return made


async def test_user_without_permission_is_forbidden_before_existence_is_checked(
    place: Place, stranger: KubernetesClient
) -> None:
    ref = place.ref("ConfigMap", "sweep-lr")
    for doing in (
        lambda: stranger.get(ref),
        lambda: stranger.list("ConfigMap", place.namespace),
        lambda: stranger.create(place.a_map()),
        lambda: stranger.merge(ref, {"data": {}}),
        lambda: stranger.merge(place.ref("Trial", "x"), {"status": {}}, subresource="status"),
        lambda: stranger.delete(ref),
        lambda: stranger.log(place.namespace, "p", "main"),
        lambda: anext(stranger.watch("Pod", place.namespace, since="1", timeout=2)),
    ):
        assert await refused(doing()) == (403, "Forbidden", {"permanent"})
    with pytest.raises(
        ApiError, match=r'User ".*stranger" cannot create resource "jobs" in API group "batch"'
    ):
        await stranger.create(place.a_job())


@pytest.mark.differs("quotas")
async def test_quota_rejects_a_job_with_403(place: Place, wait_until: Any) -> None:
    path = f"/api/v1/namespaces/{place.namespace}/resourcequotas"
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"count/jobs.batch": "0"}}}
    assert (await place.http.send("POST", path, quota)).status == 201

    async def counted() -> bool:
        return "hard" in (await place.http.send("GET", f"{path}/q")).body["status"]

    await wait_until(counted, "the quota is counted")
    with pytest.raises(ApiError, match="exceeded quota: q") as caught:
        await place.cluster.create(place.a_job())
    assert (caught.value.reason, caught.value.permanent) == ("Forbidden", True)


@pytest.mark.differs("namespaces")
async def test_terminating_namespace_rejects_new_objects(place: Place) -> None:
    await place.cluster.create(place.a_map())
    await place.hold(place.ref("ConfigMap", "sweep-lr"))
    await place.http.send("DELETE", f"/api/v1/namespaces/{place.namespace}")
    with pytest.raises(ApiError, match="because it is being terminated") as caught:
        await place.cluster.create(place.a_map("another"))
    assert (caught.value.status, caught.value.permanent) == (403, True)


NEVER_SENT = [
    ("PUT", "/sweep-lr", "application/json", {"data": {}}, 200),
    ("DELETE", "", "application/json", None, 200),
    ("PATCH", "/sweep-lr", "application/strategic-merge-patch+json", {"data": {}}, 200),
    ("PATCH", "/sweep-lr?fieldManager=bot", "application/apply-patch+yaml", {"data": {}}, 200),
    ("PATCH", "/sweep-lr", "application/json-patch+json", [], 200),
    ("PATCH", "/sweep-lr?dryRun=All", "application/merge-patch+json", {"data": {}}, 200),
]


@pytest.mark.differs("ways to write")
@pytest.mark.parametrize(("method", "path", "kind", "body", "status"), NEVER_SENT)
async def test_unused_write_methods_work_on_a_real_server(
    place: Place, method: str, path: str, kind: str, body: Any, status: int
) -> None:
    made = place.a_map()
    await place.cluster.create(made)
    sent = {**made, **body} if isinstance(body, dict) else body
    answer = await place.http.send(method, place.path("ConfigMap") + path, sent, Content_Type=kind)
    assert answer.status == status


@pytest.mark.differs("selectors")
@pytest.mark.parametrize("labels", ["app notin (x)", "app!=x", "!team"])
async def test_unused_selectors_work_on_a_real_server(place: Place, labels: str) -> None:
    await place.cluster.create(place.a_map(app="bot"))
    found = await place.cluster.list("ConfigMap", place.namespace, labels=labels)
    assert "sweep-lr" in [one["metadata"]["name"] for one in found]  # beside those of the cluster itself


@pytest.mark.differs("jobs and pods")
@pytest.mark.parametrize("spec", [{"parallelism": 2}, {"completions": 2}])
async def test_unused_job_specs_work_on_a_real_server(place: Place, spec: Manifest) -> None:
    assert await place.cluster.create(place.a_job(suspend=True, **spec))


async def test_suspended_job_can_be_resumed(place: Place) -> None:
    await place.cluster.create(place.a_job(suspend=True))
    assert await place.cluster.merge(place.ref("Job", "build"), {"spec": {"suspend": False}})


async def test_pod_with_an_init_container_is_accepted(place: Place) -> None:
    assert await place.cluster.create(place.a_pod("main", initContainers=containers("first")["containers"]))
