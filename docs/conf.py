"""Build the documents as a site: `make site`, into build/site. Sphinx reads this file.

Pages stay readable on GitHub: README.md is the start page, and its headings and links are the navigation.
The publishing workflow sets the addresses; without them, links lead to files of this checkout.
"""

import json
import os
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

from sphinx.builders.html import StandaloneHTMLBuilder

HERE = Path(__file__).parent
ROOT = HERE.parent

project = "Sweepbot"
release = (
    os.environ.get("SITE_VERSION")
    or tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
)
SITE = os.environ.get("SITE_URL") or (ROOT / "build/site").as_uri()  # of this version
SOURCE = os.environ.get("SOURCE_URL") or ROOT.as_uri()  # of the files at this version
LINK_OUT = re.compile(r"\]\(\.\./([^)\s]+)\)")
LINK_SCHEMA = re.compile(r"\]\((schemas/[^)\s]+)\)")

root_doc = "README"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["schemas"]
nitpicky = True
myst_heading_anchors = 4
myst_url_schemes = ["http", "https", "mailto", "file"]
suppress_warnings = ["misc.highlighting_failure"]  # a block of JSON or TOML may have "..." in it
highlight_language = "text"

html_theme = "furo"
html_title = f"Sweepbot {release}"
html_baseurl = f"{SITE}/"
html_copy_source = False
html_use_index = False
html_show_sphinx = False
html_show_copyright = False
html_permalinks_icon = "#"
templates_path = ["site"]
html_context = {"versions_url": "../versions.html" if "SITE_URL" in os.environ else ""}
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
        "versions.html",
    ]
}


class Site(StandaloneHTMLBuilder):
    """HTML whose results of a search are in find.html, because search.md is a page of ours."""

    def handle_page(self, pagename: str, context: Any, templatename: str = "page.html", **kept: Any) -> None:
        pagename = "find" if templatename == "search.html" else pagename
        super().handle_page(pagename, context, templatename, **kept)


def rewrite(_app: Any, page: str, source: list[str]) -> None:
    """Lead links out of docs/ to the repository, and add the navigation to the start page."""
    text = LINK_OUT.sub(rf"]({SOURCE}/\1)", source[0])
    text = LINK_SCHEMA.sub(rf"]({SITE}/\1)", text)
    source[0] = text + navigation(text) if page == root_doc else text


def navigation(start: str) -> str:
    """Return a hidden table of contents for each heading of the start page: the pages linked below it."""
    parts = [part.partition("\n") for part in start.split("\n## ")[1:]]
    return "".join(
        f"\n```{{toctree}}\n:hidden:\n:caption: {heading}\n\n"
        + "".join(f"{title(page)} <{page}>\n" for page in re.findall(r"\]\(([a-z-]+)\.md\)", text))
        + "```\n"
        for heading, _, text in parts
    )


def title(page: str) -> str:
    """Return a page's heading, which Sphinx doesn't take for search.md."""
    return (HERE / f"{page}.md").read_text().partition("\n")[0].removeprefix("# ")


def finish(app: Any, error: Exception | None) -> None:
    """Add index.html, and the schemas with their address as `$id`."""
    if error:
        return
    shutil.copy(app.outdir / "README.html", app.outdir / "index.html")
    (app.outdir / "schemas").mkdir(exist_ok=True)
    for file in sorted((HERE / "schemas").glob("*.json")):
        schema = json.loads(file.read_text())
        text = json.dumps({"$id": f"{SITE}/schemas/{file.name}"} | schema, indent=2, ensure_ascii=False)
        text = re.sub(r"\]\(([a-z-]+)\.md", rf"]({SITE}/\1.html", text)
        (app.outdir / "schemas" / file.name).write_text(f"{text}\n")


def setup(app: Any) -> dict[str, bool]:
    app.add_builder(Site, override=True)
    app.connect("source-read", rewrite)
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True}
