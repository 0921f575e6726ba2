"""The manifests of reservations grant what the code uses, and create the priority that it names."""

import yaml

from bot.operate.check_reservations import FOR_RESERVATIONS
from k8s.reservations import PRIORITY_CLASS
from tests.deploy.test_rights import DEPLOY, deployed, granted


def test_reservations_role_has_exactly_what_they_need():
    role = deployed("reservations/rights.yaml")[0]
    assert granted(role["rules"]) == {key: set(verbs) for key, verbs in FOR_RESERVATIONS.items()}


def test_reservations_priority_is_below_all_others():
    priority = yaml.safe_load((DEPLOY / "reservations/priority.yaml").read_text())
    assert priority["metadata"]["name"] == PRIORITY_CLASS
    assert priority["value"] < 0
