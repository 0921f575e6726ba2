"""docs/versions.md says what the code, the locks, and the local servers say."""

import re
import tomllib
from pathlib import Path

from bot.operate import check_trial_kinds as kinds
from bot.operate.check_state import OLDEST_REDIS
from local.kubernetes.apiserver.api import VERSION
from tests.conformance.versions import IMAGES, PAGE, numbers, table

ROOT = Path(__file__).parents[2]
TEXT = PAGE.read_text()


def test_versions_of_the_code_are_those_of_the_page() -> None:
    found = table()
    assert found["Redis"].oldest == OLDEST_REDIS
    assert found["Kubernetes"].tried == numbers(VERSION["gitVersion"])
    assert {"Kubernetes", "Redis", "slack-bolt", *IMAGES} == found.keys()
    for since in (kinds.INDEX_LABEL_SINCE, kinds.SUCCESS_POLICY_SINCE, kinds.SIDECARS_SINCE):
        assert re.search(rf"\b{since[0]}\.{since[1]}\b for|\b{since[0]}\.{since[1]} (so|to)", TEXT)
    pairs = kinds.FITTING.removeprefix("install versions that fit: Kueue ").replace(",", "").split()
    assert [word for word in pairs if word[0].isdigit()] == re.findall(
        r"\d+\.[\d.]*\d", TEXT.split("TrainJobs: ")[1].split("\n")[0]
    )


def test_versions_that_are_installed_are_those_of_the_page() -> None:
    lock = (ROOT / "requirements/run.txt").read_text()
    bolt, sdk = (re.findall(rf"^slack-{name}==(\S+)", lock, re.MULTILINE)[0] for name in ("bolt", "sdk"))
    assert f"| {bolt} | with slack-sdk {sdk}," in TEXT
    server = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"][
        "server"
    ]
    assert "slack-bolt>=" + ".".join(map(str, table()["slack-bolt"].oldest)) in server
    guide = (ROOT / "docs/install.md").read_text()
    assert {numbers(each) for each in re.findall(r"katib-standalone\?ref=(v\S+?)[\"\n]", guide)} == {
        table()["Katib"].tried
    }
