"""Relative links between documents lead to files, and to headings, that exist."""

import re
import unicodedata
from pathlib import Path

from tests.cases import cases

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "deploy", "examples", "tests", "bench", "k8s")
DOCUMENTS = [*ROOT.glob("*.md"), *(file for name in FOLDERS for file in (ROOT / name).rglob("*.md"))]
LINK = re.compile(r"\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)


def prose(file):
    return FENCE.sub("", file.read_text())


def anchors(file):
    """Return the ids that GitHub gives a document's headings."""
    headings = re.findall(r"^#+ (.+)$", prose(file), re.MULTILINE)
    return {anchor(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)) for heading in headings}


def anchor(heading):
    kept = [c for c in heading.lower() if c in "-_ " or unicodedata.category(c)[0] in "LN"]
    return "".join(kept).replace(" ", "-")


def broken(file):
    for link in LINK.findall(prose(file)):
        path, _, heading = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = (file.parent / path).resolve() if path else file
        if not target.exists() or (heading and heading not in anchors(target)):
            yield link


@cases("file", DOCUMENTS)
def test_relative_links_resolve(file):
    assert list(broken(file)) == []


def test_missing_file_and_heading_are_found(tmp_path):
    (tmp_path / "there.md").write_text("# What it's `for`\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](there.md) [b](there.md#what-its-for) [c](gone.md) [d](there.md#gone) [e](#gone) [f](https://x/y)\n"
    )
    assert list(broken(page)) == ["gone.md", "there.md#gone", "#gone"]
