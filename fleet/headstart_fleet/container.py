"""The container of headstart-format(5): a header, a table of checked sections, and values in Postcard's encoding.

What is read is untrusted. Each length is judged before memory is taken for it; what does not fit is a `Damaged`
that says which part.
"""

import struct
import zlib

import pyarrow

from headstart_fleet import limits

MAGIC = b"HSPROSET"
MAJOR = 1
HEADER = struct.Struct("<8sHHIQII")
ROW = struct.Struct("<4sIQQQII")
RAW, ZSTD = 0, 1
F32 = struct.Struct("<f")
F64 = struct.Struct("<d")


class Damaged(Exception):
    """A file that is damaged, made to deceive, or of another kind or version."""


def sections(data: bytes) -> dict[bytes, tuple[int, int, int, int, int]]:
    """The rows of the table by tag: encoding, offset, stored length, decoded length, checksum."""
    if not data.startswith(MAGIC):
        raise Damaged("it is no file of profiles: `headstart profile export` writes one")
    if len(data) < HEADER.size:
        raise Damaged("its header is cut")
    magic, major, minor, count, length, check, zero = HEADER.unpack_from(data)
    if major != MAJOR:
        raise Damaged(f"it has format version {major}, and this program reads {MAJOR}")
    if length != len(data):
        raise Damaged("its length is not the one it states")
    if count > limits.SECTIONS:
        raise Damaged("it states too many sections")
    table = data[HEADER.size : HEADER.size + ROW.size * count]
    if len(table) != ROW.size * count:
        raise Damaged("its table of sections is cut")
    if zlib.crc32(HEADER.pack(magic, major, minor, count, length, 0, zero) + table) != check:
        raise Damaged("the checksum of its header is wrong")
    rows = {}
    for tag, *row, _ in ROW.iter_unpack(table):
        # Of two with the same tag the first counts.
        rows.setdefault(tag, tuple(row))
    return rows


def section(data: bytes, rows: dict, tag: bytes, most: int) -> "Values":
    """A section of at most `most` bytes, decoded."""
    name = tag.decode()
    if tag not in rows:
        raise Damaged(f"section {name} is missing")
    encoding, offset, stored, plain, check = rows[tag]
    if offset > len(data) or stored > len(data) - offset:
        raise Damaged(f"section {name} lies outside the file")
    body = data[offset : offset + stored]
    if zlib.crc32(body) != check:
        raise Damaged(f"the checksum of section {name} is wrong")
    size = {RAW: len(body), ZSTD: plain}.get(encoding)
    if size is None:
        raise Damaged(f"section {name} has the unknown encoding {encoding}")
    if size > most:
        raise Damaged(f"section {name} has {size} bytes when decoded, {most} are allowed")
    if encoding == ZSTD:
        try:
            # Into a buffer of the size stated: a stream may ask for a window of any size.
            body = pyarrow.decompress(body, decompressed_size=size, codec="zstd", asbytes=True)
        except (pyarrow.ArrowException, OSError) as error:
            raise Damaged(f"section {name} cannot be decoded: {error}") from None
        if len(body) != size:
            raise Damaged(f"section {name} has not the length it states")
    return Values(body, name)


class Values:
    """The values of a section, read one after the other."""

    __slots__ = ("data", "at", "name")

    def __init__(self, data: bytes, name: str):
        self.data, self.at, self.name = data, 0, name

    def cut(self) -> Damaged:
        """The error for a section that ends too early."""
        return Damaged(f"section {self.name} is cut")

    def number(self, bits: int = 64) -> int:
        """A varint."""
        data, at, shift, value = self.data, self.at, 0, 0
        try:
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
                if shift >= bits:
                    raise Damaged(f"section {self.name} has a number that is too long")
        except IndexError:
            raise self.cut() from None
        if value >> bits:
            raise Damaged(f"section {self.name} has a number that is too large")
        self.at = at
        return value

    def flag(self) -> bool:
        """A byte that is 0 or 1."""
        try:
            byte = self.data[self.at]
        except IndexError:
            raise self.cut() from None
        if byte > 1:
            raise Damaged(f"section {self.name} has the byte {byte} where 0 or 1 stands")
        self.at += 1
        return byte == 1

    def count(self, what: str, most: int) -> int:
        """The number of elements of a list."""
        count = self.number()
        if count > most:
            raise Damaged(f"it has more than {most} {what}")
        if count > len(self.data) - self.at:
            raise Damaged(f"its list of {what} is cut")
        return count

    def string(self) -> bytes:
        """The bytes of a text or a path."""
        length = self.number()
        end = self.at + length
        if end > len(self.data):
            raise self.cut()
        value = self.data[self.at : end]
        self.at = end
        return value

    def text(self, most: int) -> str:
        """A text of at most `most` bytes."""
        value = self.string()
        if len(value) > most:
            raise Damaged(f"section {self.name} has a text of {len(value)} bytes, {most} are allowed")
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise Damaged(f"section {self.name} has a text that is no UTF-8") from None

    def f32(self) -> float:
        """Four bytes."""
        return self._float(F32)

    def f64(self) -> float:
        """Eight bytes."""
        return self._float(F64)

    def _float(self, kind: struct.Struct) -> float:
        try:
            (value,) = kind.unpack_from(self.data, self.at)
        except struct.error:
            raise self.cut() from None
        self.at += kind.size
        return value


def varint(value: int) -> bytes:
    """A number as it is written."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string(value: bytes) -> bytes:
    """A text or a path as it is written."""
    return varint(len(value)) + value


def write(parts: list[tuple[bytes, bytes, int]]) -> bytes:
    """A file of these sections: tag, bytes, and how many there may be."""
    rows, body = [], b""
    begin = -(-(HEADER.size + ROW.size * len(parts)) // 8) * 8
    for tag, plain, most in parts:
        if len(plain) > most:
            raise ValueError(f"section {tag.decode()} has {len(plain)} bytes, {most} are allowed")
        codec = pyarrow.Codec("zstd", compression_level=9)
        stored = codec.compress(plain, asbytes=True)
        rows.append(ROW.pack(tag, ZSTD, begin + len(body), len(stored), len(plain), zlib.crc32(stored), 0))
        body += stored + b"\0" * (-len(stored) % 8)
    table = b"".join(rows)
    head = [MAGIC, MAJOR, 0, len(parts), begin + len(body), 0, 0]
    head[5] = zlib.crc32(HEADER.pack(*head) + table)
    start = HEADER.pack(*head) + table
    data = start + b"\0" * (begin - len(start)) + body
    if len(data) > limits.FILE:
        raise ValueError(f"the file has {len(data)} bytes, {limits.FILE} are allowed")
    return data
