"""Put a built site into the directory of all versions: `python docs/publish.py build/site PAGES NAME`.

NAME is `latest` or a released version, such as 0.2.0. The workflow publishes PAGES with GitHub Pages.
"""

import re
import shutil
import sys
from pathlib import Path

LATEST = "latest"
PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>Sweepbot: all versions</title>
<style>body {{ font: 1rem/1.6 sans-serif; margin: 3rem auto; max-width: 30rem; padding: 0 1rem }}</style>
<h1>Sweepbot documentation</h1>
<ul>
{}
</ul>
</html>
"""
TO_LATEST = f"""\
<!doctype html>
<meta charset="utf-8">
<title>Sweepbot documentation</title>
<meta http-equiv="refresh" content="0; url={LATEST}/">
<a href="{LATEST}/">Sweepbot documentation</a>
"""


def publish(built: Path, pages: Path, name: str) -> None:
    """Replace one version, and write the list of all."""
    if name != LATEST and not re.fullmatch(r"\d+(\.\d+)*\w*", name):
        raise ValueError(f"{name!r} is neither {LATEST} nor a version, such as 0.2.0")
    shutil.rmtree(pages / name, ignore_errors=True)
    shutil.copytree(built, pages / name)
    found = [each.parent.name for each in pages.glob("*/index.html")]
    ordered = sorted(found, key=lambda each: (each == LATEST, *numbers(each)), reverse=True)
    about = {LATEST: f"{LATEST}, from the main branch"}
    items = "\n".join(f'<li><a href="{each}/">{about.get(each, each)}</a></li>' for each in ordered)
    (pages / "versions.html").write_text(PAGE.format(items))
    (pages / "index.html").write_text(TO_LATEST)
    (pages / ".nojekyll").touch()  # without it, GitHub hides _static/


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


if __name__ == "__main__":
    publish(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
