"""What containers find on this machine."""

import subprocess
import sys
import sysconfig
import time
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from local import image_pull


def test_concurrent_containers_share_one_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, create = [], venv.create

    def slow(*args: Any, **options: Any) -> None:
        made.append(args)
        time.sleep(0.05)
        create(*args, **options)

    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(venv, "create", slow)
    with ThreadPoolExecutor(4) as pool:
        pythons = set(pool.map(lambda _: image_pull.image_python(), range(4)))
    assert len(made) == 1
    [python] = pythons
    ended = subprocess.run(
        [python, "-c", "import redis; print('found')"], capture_output=True, text=True, check=False
    )
    assert ended.stdout == "found\n", ended.stderr


def test_image_python_outlives_a_linked_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "link").symlink_to("own")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "link"))
    python = image_pull.image_python()
    (tmp_path / "link").unlink()
    ended = subprocess.run([python.parent / "pip", "--version"], capture_output=True, text=True, check=False)
    assert ended.stdout.startswith("pip "), ended.stderr
    [packages] = python.parents[1].glob("lib/python*/site-packages/machine.pth")
    assert str(Path(sysconfig.get_path("purelib")).resolve()) in packages.read_text()
