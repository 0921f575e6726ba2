"""The published documents: a directory for each version, a list of them, and schemas at their `$id`."""

import argparse
import json
import re
from pathlib import Path

import pytest

from bot import offline_commands
from docs.publish import publish

ROOT = Path(__file__).parents[2]


@pytest.fixture
def built(tmp_path: Path) -> Path:
    (tmp_path / "built").mkdir()
    (tmp_path / "built/index.html").write_text("new")
    return tmp_path / "built"


def test_versions_are_kept_beside_each_other_and_listed_newest_first(built: Path, tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    pages.mkdir()
    for name in ("0.9.0", "0.10.0", "latest", "0.2.0"):
        publish(built, pages, name)
    assert re.findall(r'href="(.*?)/"', (pages / "versions.html").read_text()) == [
        "latest",
        "0.10.0",
        "0.9.0",
        "0.2.0",
    ]
    assert "url=latest/" in (pages / "index.html").read_text()
    assert (pages / ".nojekyll").exists()


def test_published_version_is_replaced_as_a_whole(built: Path, tmp_path: Path) -> None:
    old = tmp_path / "pages/latest/gone.html"
    old.parent.mkdir(parents=True)
    old.write_text("old")
    publish(built, tmp_path / "pages", "latest")
    assert (old.exists(), (old.parent / "index.html").read_text()) == (False, "new")


@pytest.mark.parametrize("name", ["", "..", "main", "0.1/../.."])
def test_other_names_are_no_version(built: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="neither latest nor a version"):
        publish(built, tmp_path, name)


def test_every_page_is_on_the_start_page() -> None:
    start = (ROOT / "docs/README.md").read_text()
    pages = {file.name for file in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert sorted(re.findall(r"\]\(([\w.-]+\.md)\)", start)) == sorted(pages)


def test_released_package_prints_schemas_with_their_address(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(offline_commands, "project_url", {"Documentation": "https://x.org/1.0"}.get)
    offline_commands.print_schema(argparse.Namespace(kind="space"))
    printed = json.loads(capsys.readouterr().out)
    assert printed.pop("$id") == "https://x.org/1.0/schemas/space.schema.json"
    assert printed == json.loads((ROOT / "docs/schemas/space.schema.json").read_text())


def test_site_and_package_name_the_same_address() -> None:
    site, release = ((ROOT / f".github/workflows/{name}.yml").read_text() for name in ("site", "release"))
    address = "https://$GITHUB_REPOSITORY_OWNER.github.io/${GITHUB_REPOSITORY#*/}/"
    assert f'SITE_URL="{address}$name"' in site
    assert f'site="{address}${{GITHUB_REF_NAME#v}}"' in release
