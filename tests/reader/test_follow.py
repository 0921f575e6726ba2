"""Event files: growing, as real writers leave them, and hostile."""

import math
import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboardX import SummaryWriter

from reader import follow
from reader.events import MalformedError, Picture, Scalar, values
from reader.follow import MAX_FILES, PIECE, Follower
from tests.reader.event_files import event, field, header, record, scalar, simple, tensor


def poll(follower):
    found = follower.poll(lambda: False)
    return [(folder, s.tag, s.step, s.value) for folder, s in found if isinstance(s, Scalar)]


def write(folder, content, name="events.out.tfevents.1", mode="wb"):
    with (folder / name).open(mode) as file:
        file.write(content)


def test_poll_reads_what_tensorboardx_writes_and_skips_pictures_and_texts(tmp_path):
    follower = Follower(str(tmp_path))
    assert poll(follower) == []
    with SummaryWriter(str(tmp_path)) as one, SummaryWriter(str(tmp_path / "validation")) as other:
        one.add_text("notes", "loss=1")
        one.add_histogram("weights", [1.0, 2.0], 1)
        one.add_scalar("loss", 0.5, 1)
        other.add_scalar("loss", math.inf, 1)
    assert sorted(poll(follower)) == [("", "loss", 1, 0.5), ("validation", "loss", 1, math.inf)]
    with SummaryWriter(str(tmp_path), filename_suffix=".restarted") as again:
        again.add_scalar("loss", 0.25, 2)
    assert poll(follower) == [("", "loss", 2, 0.25)]
    assert poll(follower) == []


def test_files_of_a_folder_are_read_in_the_order_of_their_names(tmp_path):
    for number in (8, 3, 1, 9, 2, 7, 5, 4, 6):
        write(tmp_path, scalar("loss", 0.5, number), f"events.out.tfevents.17959511{number}0.host.7.0")
    assert [step for _, _, step, _ in poll(Follower(str(tmp_path)))] == [*range(1, 10)]


def test_poll_after_each_byte_returns_each_scalar_once(tmp_path):
    content = b"".join(scalar("loss", 1 / step, step) for step in (1, 2, 4))
    follower, found = Follower(str(tmp_path)), []
    for byte in content:
        write(tmp_path, bytes([byte]), mode="ab")
        found += poll(follower)
    assert found == [("", "loss", step, 1 / step) for step in (1, 2, 4)]


def test_poll_of_a_replaced_or_shortened_file_starts_again(tmp_path):
    follower = Follower(str(tmp_path))
    write(tmp_path, scalar("loss", 1, 1) + scalar("loss", 2, 2))
    assert len(poll(follower)) == 2
    write(tmp_path, scalar("loss", 3, 3))
    assert poll(follower) == [("", "loss", 3, 3)]


def test_poll_that_has_enough_continues_there(tmp_path):
    write(tmp_path, b"".join(scalar("loss", step, step) for step in range(3)))
    follower, answers = Follower(str(tmp_path)), iter([False, True, True])
    first = [s.step for _, s in follower.poll(lambda: next(answers))]
    assert (first, [step for _, _, step, _ in poll(follower)]) == ([0], [1, 2])


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (field(1, 1) + b"\x2d" + struct.pack("<f", 0.5), 0.5),  # float_val
        (field(1, 1) + field(5, struct.pack("<f", 0.5)), 0.5),  # packed
        (field(1, 2) + field(4, struct.pack("<d", 0.1)), 0.1),  # tensor_content
        (field(1, 2) + field(6, 0.1), 0.1),  # double_val
        (field(1, 1) + field(4, b"12345678"), None),
        (field(1, 7) + field(4, b"12345678"), None),  # a text
    ],
)
def test_scalars_of_tensors_are_those_of_one_float(content, value):
    expected = [] if value is None else [Scalar("loss", -1, value, 1.0)]
    assert (
        list(values(event(-1, tensor("loss", content), tensor("loss", content, b"scalars")))) == expected * 2
    )
    assert list(values(event(-1, tensor("loss", content, b"text")))) == []


HOSTILE = {
    "a length of 2^60": header(2**60) + b"0" * 100,
    "garbage": b"\xff" * 1000,
    "a tag of 1 MB": record(event(1, simple("x" * 2**20, 1))),
    "a message of 5 MB": record(b"\0" * 5 * 2**20),
    "a field longer than its message": record(field(5, b"12345")[:-3]),
    "a number without an end": record(b"\x10" + b"\xff" * 20),
    "fields in fields": record(event(1, *[b""] * 50_000)),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_hostile_files_hide_nothing_that_came_before_or_beside_them(content, tmp_path):
    write(tmp_path, scalar("loss", 1, 1) + content)
    write(tmp_path, scalar("loss", 2, 2), "other.tfevents")
    assert sorted(poll(Follower(str(tmp_path)))) == [("", "loss", 1, 1), ("", "loss", 2, 2)]


def test_links_pipes_and_folders_are_not_opened(tmp_path):
    there, elsewhere = tmp_path / "there", tmp_path / "elsewhere"
    there.mkdir()
    elsewhere.mkdir()
    write(elsewhere, scalar("loss", 1, 1))
    (there / "link.tfevents").symlink_to(elsewhere / "events.out.tfevents.1")
    (there / "folder").symlink_to(elsewhere)
    (there / "round").symlink_to(there)
    os.mkfifo(there / "pipe.tfevents")
    (there / "folder.tfevents").mkdir()
    assert poll(Follower(str(there))) == []


def test_only_so_many_files_are_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(follow, "MAX_FILES", 3)
    for number in range(5):
        write(tmp_path, scalar("loss", 1, 1), f"{number}.tfevents")
    follower = Follower(str(tmp_path))
    assert (len(poll(follower)), poll(follower), MAX_FILES) == (3, [], 2_000)


def test_large_file_is_read_in_pieces(tmp_path, monkeypatch):
    """What one reading takes is what memory is used for, however large the file is."""
    taken = []

    class Counting(follow._Window):
        def read(self, at, count):
            found = super().read(at, count)
            taken.append(len(self._piece))
            return found

    monkeypatch.setattr(follow, "_Window", Counting)
    one = scalar("loss", 1, 1) + record(b"\0" * 5 * 2**20)
    write(tmp_path, one * 10)
    assert len(poll(Follower(str(tmp_path)))) == 10
    assert max(taken) <= PIECE


@given(st.binary(max_size=300))
def test_scalars_of_any_bytes_are_malformed_at_most(content):
    try:
        found = list(values(content))
    except MalformedError:
        return
    assert all(isinstance(each, Scalar | Picture) for each in found)


@given(st.lists(st.floats(width=32, allow_nan=False), max_size=20), st.data())
def test_scalars_before_garbage_are_all_read(tmp_path_factory, values, data):
    folder = tmp_path_factory.mktemp("events")
    content = b"".join(scalar("loss", value, step) for step, value in enumerate(values))
    cut = data.draw(st.integers(0, len(content)))
    write(folder, content[:cut] + data.draw(st.binary(max_size=50)))
    size = len(scalar("loss", 0, 0))
    found = poll(Follower(str(folder)))
    assert (
        found[: cut // size]
        == [("", "loss", step, value) for step, value in enumerate(values)][: cut // size]
    )
