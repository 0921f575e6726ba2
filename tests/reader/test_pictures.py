"""Pictures that a training logs or leaves in a folder: the last ones, few, small, and no links."""

import json
import os
from base64 import b64decode

import numpy as np
import pytest
from tensorboardX import SummaryWriter

from reader.events import MAX_PICTURE, Picture, values
from reader.follow import Follower
from reader.pictures import MAX_PICTURES, MAX_TOTAL, Pictures
from tests.reader.event_files import event, field, tensor

PNG = b"\x89PNG\r\n\x1a\n"


def kept(pictures):
    found = {}
    for line in map(json.loads, pictures.lines()):
        found[line["picture"]] = found.get(line["picture"], b"") + b64decode(line["data"])
    return found


def image(tag, content):
    return field(1, tag.encode()) + field(4, field(1, 8) + field(2, 8) + field(4, content))


def test_pictures_that_tensorboardx_writes_are_found_with_their_steps(tmp_path):
    with SummaryWriter(str(tmp_path)) as log:
        log.add_image("samples", np.zeros((3, 8, 8)), 5)
    [(_, found)] = Follower(str(tmp_path)).poll(lambda: False)
    assert (found.tag, found.step, found.content[:8]) == ("samples", 5, PNG)


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (image("a", PNG), PNG),
        (tensor("a", b"".join(field(8, each) for each in (b"8", b"8", PNG, b"second")), b"images"), PNG),
        (tensor("a", field(8, b"8"), b"images"), None),
        (tensor("a", b"".join(field(8, each) for each in (b"8", b"8", PNG)), b"text"), None),
        (image("a", b"x" * (MAX_PICTURE + 1)), None),
        (image("a", b""), None),
        (image("", PNG), None),
    ],
)
def test_picture_is_an_image_or_the_first_of_a_tensor_of_images(value, content):
    expected = [Picture("a", 1, 1.0, content)] if content else []
    assert list(values(event(1, value))) == expected


def test_last_picture_of_each_name_is_kept_as_far_as_there_is_room():
    pictures = Pictures()
    for step in range(3):
        for number in range(20):
            pictures.add(f"p{number:02}", Picture("p", step, 1.0, f"{number} {step}".encode()))
    assert kept(pictures) == {f"p{number:02}": f"{number} 2".encode() for number in range(MAX_PICTURES)}
    full = Pictures()
    for number in range(5):
        full.add(str(number), Picture("p", 1, 1.0, b"x" * (MAX_TOTAL // 2)))
    full.add("0", Picture("p", 2, 1.0, b"x" * (MAX_TOTAL // 2 + 1)))
    assert {name: len(content) for name, content in kept(full).items()} == dict.fromkeys("01", MAX_TOTAL // 2)


def test_newest_files_of_the_folder_are_pictures_but_no_links_pipes_and_large_ones(tmp_path):
    place, elsewhere = tmp_path / "artifacts", tmp_path / "elsewhere"
    (place / "folder.png").mkdir(parents=True)
    elsewhere.mkdir()
    (elsewhere / "secret.png").write_bytes(b"secret")
    (place / "link.png").symlink_to(elsewhere / "secret.png")
    os.mkfifo(place / "pipe.png")
    (place / "large.png").write_bytes(b"x" * (MAX_PICTURE + 1))
    (place / "notes.txt").write_bytes(b"text")
    (place / "a.PNG").write_bytes(PNG)
    pictures = Pictures()
    pictures.add_files(str(tmp_path))
    assert kept(pictures) == {"artifacts/a.PNG": PNG}
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "artifacts").symlink_to(elsewhere)
    pictures = Pictures()
    pictures.add_files(str(linked))
    pictures.add_files(str(tmp_path / "missing"))
    assert kept(pictures) == {}
