"""Event files written by hand."""

import struct

from reader.events import masked_crc


def field(number, content):
    """Encode a protobuf field: of bytes, a float (double), or a whole number."""
    if isinstance(content, float):
        return bytes([number << 3 | 1]) + struct.pack("<d", content)
    if isinstance(content, int):
        return bytes([number << 3]) + varint(content % 2**64)
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def varint(value):
    found = b""
    while value > 0x7F:
        found, value = found + bytes([value & 0x7F | 0x80]), value >> 7
    return found + bytes([value])


def header(length):
    size = struct.pack("<Q", length)
    return size + struct.pack("<I", masked_crc(size))


def record(message):
    return header(len(message)) + message + b"\0\0\0\0"


def event(step, *values, at=1.0):
    return field(1, at) + field(2, step) + field(5, b"".join(field(1, value) for value in values))


def simple(tag, value):
    return field(1, tag.encode()) + b"\x15" + struct.pack("<f", value)


def tensor(tag, content, plugin=b""):
    metadata = field(9, field(1, field(1, plugin))) if plugin else b""
    return field(1, tag.encode()) + field(8, content) + metadata


def scalar(tag, value, step, at=1.0):
    return record(event(step, simple(tag, value), at=at))
