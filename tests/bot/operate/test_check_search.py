"""The doctor's check of the search service's entry in katib-config."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from bot.core.finding import Level
from bot.operate.check_services import evaluate_entry, search_service
from local import cluster_fixtures
from local.kubernetes.apiserver.store import Store
from tests.bot.factories import CONFIG as PLAIN
from tests.bot.operate.test_check_trial_kinds import configure
from tests.scenarios.fakes import DirectCluster

CONFIG = replace(PLAIN, search_service=True)
COMPONENT = (Path(__file__).parents[3] / "deploy/search/katib-config.yaml").read_text()


@pytest.fixture
def store():
    found = Store()
    cluster_fixtures.install(found, [])
    return found


async def test_search_service_of_the_component_is_ok(store):
    configure(store, "katib-config", "kubeflow", COMPONENT)
    [finding] = await search_service(DirectCluster(store), CONFIG)
    image = "registry.registry.svc:5000/sweepbot-search:0.1.0"
    assert (finding.level, finding.text) == (Level.OK, f"registered as sweepbot, image {image}")


async def test_search_service_that_is_not_configured_is_not_checked(store):
    assert await search_service(DirectCluster(store), replace(CONFIG, search_service=False)) == []
    assert (
        await search_service(DirectCluster(Store()), CONFIG) == []
    )  # without Katib, which has its own check


async def test_search_service_without_katibs_configuration_warns(store):
    [finding] = await search_service(DirectCluster(store), CONFIG)
    assert (finding.level, finding.text) == (
        Level.WARNING,
        "ConfigMap katib-config in kubeflow not found",
    )


ENTRY = {"algorithmName": "sweepbot", "image": "i", "resources": {"limits": {"memory": "300Mi"}}}
DROPPED = "katib-config has no algorithm sweepbot; Katib rejects sweeps with algorithm auto"
NO_IMAGE = "sweepbot in katib-config has no image; its sweeps never start"
MEMORY = (
    "sweepbot in katib-config needs resources.limits.memory of 300Mi or more; large sweeps stop otherwise"
)


@pytest.mark.parametrize(
    ("text", "level", "what"),
    [
        ("runtime: {suggestions: [{algorithmName: random, image: i}]}", Level.BROKEN, DROPPED),
        ("runtime: {suggestions: [3, {}]}", Level.BROKEN, DROPPED),
        ("runtime: {suggestions: text}", Level.BROKEN, DROPPED),
        ("runtime: 3", Level.BROKEN, DROPPED),
        ("init: {}", Level.BROKEN, DROPPED),
    ],
)
def test_entry_that_an_upgrade_dropped_is_broken(text, level, what):
    finding = evaluate_entry(yaml.safe_load(text))
    assert (finding.level, finding.text) == (level, what)
    assert finding.fix.startswith("register it again: docs/install.md#install-the-search-service")


@pytest.mark.parametrize(
    ("change", "level", "what"),
    [
        ({}, Level.OK, "registered as sweepbot, image i"),
        ({"resources": {"limits": {"memory": "1Gi"}}}, Level.OK, "registered as sweepbot, image i"),
        ({"resources": {"limits": {"memory": 400000000}}}, Level.OK, "registered as sweepbot, image i"),
        ({"image": ""}, Level.BROKEN, NO_IMAGE),
        ({"resources": {"limits": {"memory": "100Mi"}}}, Level.WARNING, MEMORY),
        ({"resources": {"limits": {"memory": "many"}}}, Level.WARNING, MEMORY),
        ({"resources": {}}, Level.WARNING, MEMORY),
    ],
)
def test_entry_needs_an_image_and_memory(change, level, what):
    finding = evaluate_entry({"runtime": {"suggestions": [ENTRY | change]}})
    assert (finding.level, finding.text) == (level, what)
