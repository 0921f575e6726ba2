"""The cache has the fields that reconciles read, and knows when a read needs the API server."""

import json
import math
import tracemalloc

import pytest

from k8s.api import cache as cache_module
from k8s.api.cache import Cache, CacheReader, Caches, Change
from k8s.jobs import read_job
from k8s.katib.status import read_experiment, read_trial
from k8s.objects import BUILD_LABEL, SWEEP_LABEL, Ref, read_each, read_once
from k8s.pods import read_pod
from k8s.slim import slim
from tests.k8s.conftest import RECORDINGS

GROUP = (SWEEP_LABEL, "lr-brave-otter")


def a_trial(name="t1", version=1, sweep=GROUP[1], **status):
    labels = {SWEEP_LABEL: sweep, "katib.kubeflow.org/experiment": sweep, "someone": "else"}
    meta = {"name": name, "namespace": "sweeps", "resourceVersion": str(version), "labels": labels}
    return {"kind": "Trial", "metadata": meta, "spec": {"runSpec": {"big": "x" * 5000}}, "status": status}


def condition(type_, status="True"):
    return {"conditions": [{"type": type_, "status": status}]}


class Kept(Cache):
    """A complete one, with the changes that it reported."""

    def __init__(self, kind="Trial"):
        self.changes = []
        super().__init__(kind, "sweeps", self.changes.append, slim)
        self.complete = True
        self.listed.set()


def test_change_is_reported_with_its_group_and_whether_it_is_live():
    cache = Kept()
    cache.put(a_trial())
    cache.put(a_trial(version=2, **condition("Succeeded")))
    cache.remove("t1", "3")
    states = ((True, 1), (False, 2), (False, 3))
    assert cache.changes == [Change(GROUP, live, False, "Trial", each) for live, each in states]
    assert (cache.get("t1"), cache.list(dict([GROUP]))) == (None, [])


@pytest.mark.parametrize("version", ["", "a7f3", "1" * 16, "1" * 5000])
def test_version_that_cannot_be_compared_is_unknown(version):
    cache = Kept()
    cache.put(a_trial(version=version))
    assert [each.version for each in cache.changes] == [math.inf]


def a_pod(name, **status):
    meta = {"name": name, "namespace": "sweeps", "resourceVersion": "1", "labels": dict([GROUP])}
    return {"kind": "Pod", "metadata": meta, "spec": {}, "status": status}


def test_deleted_pods_are_kept_for_a_while_if_they_were_disrupted(monkeypatch):
    now = 0.0
    monkeypatch.setattr(cache_module, "monotonic", lambda: now)
    monkeypatch.setattr(cache_module, "MAX_DISRUPTED", 2)
    cache = Kept("Pod")

    def names():
        return [pod["metadata"]["name"] for pod in Caches([cache]).disrupted("sweeps", GROUP)]

    cache.put(a_pod("calm"))
    for name in ("one", "two", "three"):
        cache.put(a_pod(name, **condition("DisruptionTarget")))
        cache.remove(name)
    cache.remove("calm")
    assert names() == ["two", "three"]
    now = cache_module.DISRUPTED_SECONDS + 1
    assert names() == []
    assert Caches([cache]).disrupted("elsewhere", GROUP) == []


def test_change_of_unread_fields_is_cached_and_not_reported():
    cache = Kept()
    cache.put(a_trial())
    cache.put(a_trial(version=2, lastReconcileTime="2026-11-21T12:00:00Z"))
    assert len(cache.changes) == 1
    assert cache.get("t1")["metadata"]["resourceVersion"] == "2"


def test_first_list_is_reported_as_initial():
    cache = Kept()
    cache.listed.clear()
    cache.put(a_trial())
    assert cache.changes == [Change(GROUP, live=True, initial=True, kind="Trial", version=1)]


def test_object_whose_label_changes_moves_and_both_groups_are_reported():
    cache = Kept()
    cache.put(a_trial())
    cache.put(a_trial(version=2, sweep="lr-calm-lynx"))
    assert [change.group[1] for change in cache.changes] == [GROUP[1], GROUP[1], "lr-calm-lynx"]
    assert cache.list(dict([GROUP])) == []
    assert len(cache.list({SWEEP_LABEL: "lr-calm-lynx"})) == 1


def test_objects_of_no_sweep_and_no_build_are_not_cached():
    cache = Kept()
    trial = a_trial()
    trial["metadata"]["labels"] = None
    cache.put(trial)
    assert (cache.get("t1"), cache.changes) == (None, [])


def test_list_replaces_the_cached_objects():
    cache = Kept()
    for name in ("t1", "t2", "t3"):
        cache.put(a_trial(name))
    cache.retain({"t2", "t9"})
    assert [trial["metadata"]["name"] for trial in cache.list(dict([GROUP]))] == ["t2"]
    assert len(cache.changes) == 5


def test_selector_needs_all_labels():
    cache = Kept()
    cache.put(a_trial())
    experiment = "katib.kubeflow.org/experiment"
    assert len(cache.list({**dict([GROUP]), experiment: GROUP[1]})) == 1
    assert cache.list({**dict([GROUP]), experiment: "other"}) == []
    assert cache.list({experiment: GROUP[1]}) is None


def test_hostile_object_takes_little_memory():
    cache = Kept()
    trial = a_trial(**condition("Failed"))
    trial["status"]["conditions"][0]["message"] = "x" * 1_000_000
    cache.put(trial)
    assert len(cache.get("t1")["status"]["conditions"][0]["message"]) == 4096


class Direct:
    """An API server's client that counts its calls."""

    def __init__(self):
        self.asked = []

    async def get(self, ref):
        self.asked.append(ref)

    async def list(self, kind, namespace, *, labels):
        self.asked.append((kind, namespace, labels))
        return []


@pytest.mark.parametrize("namespace", ["sweeps", "vision"])
@pytest.mark.parametrize("complete", [True, False])
async def test_reader_uses_the_api_server_until_the_cache_is_complete(complete, namespace):
    cache, direct = Kept(), Direct()
    cache.complete = complete
    cache.put(a_trial())
    reader = CacheReader(Caches([cache]), direct)
    labels = f"{GROUP[0]}={GROUP[1]}"
    listed = await reader.list("Trial", namespace, labels=labels)
    got = await reader.get(Ref("Trial", namespace, "t1"))
    from_memory = complete and namespace == "sweeps"
    assert reader.cached == from_memory
    assert (listed == [got]) == from_memory
    asked = [("Trial", namespace, labels), Ref("Trial", namespace, "t1")]
    assert direct.asked == ([] if from_memory else asked)


async def test_reader_uses_the_api_server_for_unknown_selectors():
    reader = CacheReader(Caches([Kept()]), direct := Direct())
    await reader.list("Trial", "sweeps", labels="app=web")
    assert (len(direct.asked), reader.cached) == (1, False)


async def test_reader_missing_object_needs_no_request():
    reader = CacheReader(Caches([Kept()]), direct := Direct())
    assert await reader.get(Ref("Trial", "sweeps", "t1")) is None
    assert (direct.asked, reader.cached) == ([], True)


READ = {
    "Pod": lambda obj: [read_pod(obj, name) for name in ("main", "c", "kaniko")],
    "Job": read_job,
    "Trial": lambda obj: read_trial(obj, {"loss": "min", "accuracy": "max"}),
    "Experiment": read_experiment,
}


def recorded():
    for file in sorted(RECORDINGS.rglob("*.json")):
        body = json.loads(file.read_text()).get("body")
        items = body.get("items", [body]) if isinstance(body, dict) else []
        kind = body.get("kind", "").removesuffix("List") if items else ""
        yield from ((file.name, kind, {"kind": kind} | obj) for obj in items if kind in READ)


def test_slim_objects_parse_like_whole_ones():
    """Of every pod, Job, trial, and experiment that a real API server answered."""
    objects = [each for each in recorded() if "metadata" in each[2]]
    assert {kind for _, kind, _ in objects} == READ.keys()
    for file, kind, obj in objects:
        small, whole = READ[kind](slim(obj)), READ[kind](obj)
        assert without_raw(small) == without_raw(whole), file


def without_raw(value):
    return {**vars(value), "raw": None} if hasattr(value, "raw") else value


def test_trial_with_job_and_pod_takes_less_than_five_kilobytes():
    files = ("13-trials.json", "05-job-complete.json", "04-pod-oomkilled.json")
    objects = [next(obj for file, _, obj in recorded() if file == name) for name in files]
    caches = {obj["kind"]: Cache(obj["kind"], "sweeps", lambda _: None, slim) for obj in objects}
    names = [f"lr-brave-otter-{n:08}" for n in range(500)]
    tracemalloc.start()
    for name in names:
        for obj in objects:
            meta = {**obj["metadata"], "name": name}
            meta["labels"] = {**meta.get("labels", {}), SWEEP_LABEL: name[:20]}
            caches[obj["kind"]].put({**obj, "metadata": meta})
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used / len(names) < 5000


def test_object_is_parsed_and_read_once_until_it_changes(monkeypatch):
    monkeypatch.setattr(cache_module, "MAX_PARSED", 2)
    monkeypatch.setattr(cache_module, "SMALL_GROUP", 1)
    cache, read = Kept(), []

    def name_of(obj, end):
        read.append(obj["metadata"]["name"])
        return obj["metadata"]["name"] + end

    def names(end="!"):
        return [*read_each(name_of, cache.list(dict([GROUP])), end)]

    cache.put(a_trial("t1"))
    cache.put(a_trial("t2"))
    assert [names(), names(), read] == [["t1!", "t2!"], ["t1!", "t2!"], ["t1", "t2"]]
    assert cache.get("t1") is cache.get("t1")
    cache.put(a_trial("t1", version=2))
    assert (cache.get("t1")["metadata"]["resourceVersion"], names(), read[2:]) == (
        "2",
        ["t1!", "t2!"],
        ["t1"],
    )
    assert (names("?"), read[3:]) == (["t1?", "t2?"], ["t1", "t2"])
    cache.remove("t2")
    cache.put(a_trial("t2"))
    cache.put(a_trial("t3"))
    assert (names("?"), read[5:]) == (["t1?", "t2?", "t3?"], ["t2", "t3"])
    assert len(cache._parsed) == 2
    cache.put(a_trial("t4", sweep="lr-calm-lynx"))
    assert cache.get("t4") is not cache.get("t4")  # of a small sweep among many: they would fill the memory
    assert [read_once(name_of, a_trial("own"), "!") for _ in range(2)] == ["own!", "own!"]
    assert read[7:] == ["own", "own"]


def test_builds_are_grouped_by_their_own_label():
    cache = Kept("Job")
    cache.put({"kind": "Job", "metadata": {"name": "build-1", "labels": {BUILD_LABEL: "build-1"}}})
    assert cache.changes == [Change((BUILD_LABEL, "build-1"), live=True, initial=False, kind="Job")]
