"""Parse TensorBoard's event files: records of protobuf messages, of which scalars and pictures are read.

A record is its length (u64), the length's masked CRC-32C, the message, and the message's checksum. The latter
isn't checked: in Python that would take most of the time, and a message with errors is skipped.
https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/util/event.proto
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

HEADER, FOOTER = 12, 4  # bytes before and after a message
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # protobuf's wire types
MAX_TAG = 1_000  # bytes; longer tags are no metric's
FLOAT, DOUBLE = 1, 2  # TensorProto's types
SCALARS, PICTURES = (b"", b"scalars"), b"images"  # plugins, by which tensors are known
MAX_PICTURE = 2**20  # bytes; larger ones are skipped

Field = tuple[int, int, int, int]  # number, wire type, and start and end, or the value of a varint twice


class MalformedError(ValueError):
    """These bytes aren't what an event file has."""


@dataclass(frozen=True)
class Scalar:
    tag: str
    step: int
    value: float
    at: float  # Unix seconds


@dataclass(frozen=True)
class Picture:
    """A picture or video as it was encoded, not looked at."""

    tag: str
    step: int
    at: float  # Unix seconds
    content: bytes


def _table() -> tuple[int, ...]:
    def entry(crc: int) -> int:
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        return crc

    return tuple(map(entry, range(256)))


_CRC = _table()


def masked_crc(data: bytes) -> int:
    """Return the checksum of a record's length."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def message_length(header: bytes) -> int:
    """Return how many bytes the message after this header has. Raises MalformedError."""
    length, crc = struct.unpack("<QI", header)
    if masked_crc(header[:8]) != crc:
        raise MalformedError("a record's length doesn't match its checksum")
    return int(length)


def values(message: bytes) -> Iterator[Scalar | Picture]:
    """Yield the scalars and pictures of an Event. Raises MalformedError."""
    at, step, summaries = 0.0, 0, []
    for number, wire, start, end in _fields(message, 0, len(message)):
        if number == 1 and wire == FIXED64:
            at = struct.unpack_from("<d", message, start)[0]
        elif number == 2 and wire == VARINT:
            step = start - 2**64 if start >= 2**63 else start
        elif number == 5 and wire == BYTES:
            summaries.append((start, end))
    for span in summaries:
        for number, wire, start, end in _fields(message, *span):
            if number == 1 and wire == BYTES and (found := _value(message, start, end)):
                tag, value = found
                if isinstance(value, bytes):
                    yield Picture(tag, step, at, value)
                else:
                    yield Scalar(tag, step, value, at)


def _value(data: bytes, start: int, end: int) -> tuple[str, float | bytes] | None:
    """Return tag and value of a Summary.Value; None if it is neither a scalar nor a picture."""
    tag, plugin, tensor = b"", b"", None
    value: float | bytes | None = None
    for number, wire, at, to in _fields(data, start, end):
        if number == 1 and wire == BYTES and to - at <= MAX_TAG:
            tag = data[at:to]
        elif number == 2 and wire == FIXED32:
            value = struct.unpack_from("<f", data, at)[0]
        elif number == 4 and wire == BYTES:
            value = _bytes(data, at, to, 4, which=0)
        elif number == 8 and wire == BYTES:
            tensor = at, to
        elif number == 9 and wire == BYTES:
            plugin = _plugin(data, at, to)
    if value is None and tensor and plugin in SCALARS:
        value = _of_tensor(data, *tensor)
    elif value is None and tensor and plugin == PICTURES:
        value = _bytes(data, *tensor, 8, which=2)  # after width and height
    return None if value is None or not tag else (tag.decode(errors="replace"), value)


def _bytes(data: bytes, start: int, end: int, number: int, *, which: int) -> bytes | None:
    """Return one of the fields with this number; None if it is missing, empty, or too large."""
    spans = ((at, to) for n, wire, at, to in _fields(data, start, end) if (n, wire) == (number, BYTES))
    at, to = next(islice(spans, which, None), (0, 0))
    return data[at:to] if 0 < to - at <= MAX_PICTURE else None


def _plugin(data: bytes, start: int, end: int) -> bytes:
    for number, wire, at, to in _fields(data, start, end):
        if number == 1 and wire == BYTES:
            names = (data[a:b] for n, w, a, b in _fields(data, at, to) if (n, w) == (1, BYTES))
            return next(names, b"")
    return b""


def _of_tensor(data: bytes, start: int, end: int) -> float | None:
    """Return the value of a tensor with one float or double; None for others."""
    kind, found = 0, None
    for number, wire, at, to in _fields(data, start, end):
        if number == 1 and wire == VARINT:
            kind = at
        elif (number in {4, 5, 6} and wire in {BYTES, FIXED32, FIXED64}) and to - at in {4, 8}:
            found = at, to
    size, form = {FLOAT: (4, "<f"), DOUBLE: (8, "<d")}.get(kind, (0, ""))
    if found is None or found[1] - found[0] != size:
        return None
    return float(struct.unpack_from(form, data, found[0])[0])


def _fields(data: bytes, at: int, end: int) -> Iterator[Field]:
    while at < end:
        key, at = _varint(data, at, end)
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            value, at = _varint(data, at, end)
            yield number, wire, value, value
            continue
        if wire == BYTES:
            size, at = _varint(data, at, end)
        else:
            size = {FIXED64: 8, FIXED32: 4}.get(wire, end)
        if size > end - at:
            raise MalformedError("a field is longer than its message")
        yield number, wire, at, at + size
        at += size


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise MalformedError("a number has no end")
