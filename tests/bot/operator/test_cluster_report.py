"""An admin is notified once of a cluster that only they can bring back."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from bot.clusters.connections import Clusters
from bot.config.clusters import TrialCluster
from bot.operator.cluster_report import ClusterReport
from bot.slack.client import SlackBusyError
from k8s.api.errors import ClusterUnreachableError
from k8s.api.remote import RemoteClient
from tests.bot.factories import CONFIG, NOW

REJECTED = ClusterUnreachableError(
    "west", "the API server rejects the credentials (401)", fix="Put a valid token into its kubeconfig."
)
CONFIGURED = replace(
    CONFIG, clusters=(TrialCluster(name="west", kubeconfig="/west"),), admin_channel="CADMINS"
)


class Channel:
    def __init__(self) -> None:
        self.posted, self.busy = [], False

    async def post(self, channel, message):
        if self.busy:
            raise SlackBusyError(1.0)
        self.posted.append((channel, message.text))


@pytest.fixture
def west():
    async def known(uid: str) -> str:
        return uid

    return RemoteClient("west", "/west", "", known)


@pytest.fixture
def report(redis, west):
    clusters, slack = Clusters(lambda _: west), Channel()
    clients = SimpleNamespace(clusters=clusters, slack=slack, config=CONFIGURED, mask=lambda text: text)
    made = ClusterReport(clients, redis)
    made.posted, made.slack = slack.posted, slack
    return made


async def test_rejected_token_is_reported_once_and_its_end_once(report, west):
    west.failure = REJECTED
    for _ in range(4):
        await report.check()
    text = (
        ":warning: Cluster `west` can't be used, so its sweeps wait: the API server rejects the credentials "
        "(401). *Fix:* Put a valid token into its kubeconfig."
    )
    assert report.posted == [("CADMINS", text)]
    west.failure, west.seen = None, NOW
    for _ in range(2):
        await report.check()
    assert [text for _, text in report.posted[1:]] == [":white_check_mark: Cluster `west` answers again."]


async def test_cluster_that_only_does_not_answer_is_not_reported(report, west):
    west.failure = ClusterUnreachableError("west", "no route to host")
    for _ in range(3):
        await report.check()
    assert report.posted == []


async def test_report_that_slack_delays_is_repeated(report, west):
    west.failure, report.slack.busy = REJECTED, True
    await report.check()
    with pytest.raises(SlackBusyError):
        await report.check()
    report.slack.busy = False
    await report.check()
    assert len(report.posted) == 1
