"""Which version of Kueue's API is called: the newest that the cluster serves."""

import pytest
from aiohttp import web

from k8s.api.errors import ApiError
from k8s.objects import Ref

WORKLOAD = Ref("Workload", "sweeps", "job-a")


class KueueServer:
    """`versions`: those served, in any order; none: Kueue isn't installed."""

    def __init__(self, *versions, status=404):
        self.versions, self.status, self.asked = versions, status, []

    async def answer(self, request):
        self.asked.append(request.path.removeprefix("/apis/kueue.x-k8s.io"))
        if request.path == "/apis/kueue.x-k8s.io" and self.versions:
            return web.json_response(
                {"kind": "APIGroup", "versions": [{"version": each} for each in self.versions]}
            )
        if request.path.split("/")[3:4] and request.path.split("/")[3] in self.versions:
            return web.json_response(
                {"kind": "WorkloadList", "metadata": {}, "items": [{"metadata": {"name": "job-a"}}]}
            )
        return web.Response(status=self.status, text="404 page not found")


@pytest.fixture
def kueue(toy, connected):
    async def start(*versions, **options):
        server = KueueServer(*versions, **options)
        return await connected(await toy(server.answer)), server

    return start


@pytest.mark.parametrize(
    ("versions", "chosen"),
    [(("v1beta1",), "v1beta1"), (("v1beta1", "v1beta2"), "v1beta2"), (("v1beta2", "v1"), "v1beta2")],
)
async def test_newest_known_version_is_called_after_one_discovery(kueue, versions, chosen):
    cluster, server = await kueue(*versions)
    await cluster.list("Workload", "sweeps")
    await cluster.merge(WORKLOAD, {"spec": {"active": False}})
    here = f"/{chosen}/namespaces/sweeps/workloads"
    assert server.asked == ["", here, f"{here}/job-a"]


async def test_cluster_without_kueue_answers_as_before(kueue):
    cluster, server = await kueue()
    with pytest.raises(ApiError, match=r"doesn't serve kueue.x-k8s.io/v1beta1/.*; is it installed"):
        await cluster.list("LocalQueue", "sweeps")
    server.versions = ("v1beta2",)  # installed since
    assert await cluster.list("LocalQueue", "sweeps")


async def test_version_that_an_upgrade_removed_is_discovered_again(kueue):
    cluster, server = await kueue("v1beta1")
    await cluster.list("Workload", "sweeps")
    server.versions = ("v1beta2",)
    with pytest.raises(ApiError):
        await cluster.list("Workload", "sweeps")
    assert await cluster.list("Workload", "sweeps")


async def test_discovery_that_fails_is_an_error_of_the_call(kueue):
    cluster, server = await kueue(status=503)
    with pytest.raises(ApiError) as caught:
        await cluster.list("Workload", "sweeps")
    assert caught.value.status == 503
    assert server.asked == [""]


async def test_other_kinds_need_no_discovery(kueue):
    cluster, server = await kueue("v1beta2")
    with pytest.raises(ApiError):
        await cluster.list("Pod", "sweeps")
    assert server.asked == ["/api/v1/namespaces/sweeps/pods"]
