"""headstart-profiles(5): what comes back, and what is refused."""

import random
import re
import struct
import zlib
from pathlib import Path

import pytest
from support import entry, profile

from headstart_fleet import container, limits
from headstart_fleet.container import Damaged, string, varint
from headstart_fleet.profiles import MISSING, Entry, read, write_set

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).parent / "data"


def some_set():
    missing = Entry(b"/etc/ld.so.preload", None, None, MISSING, 1.0, 5)
    libc = entry("/usr/lib/libc.so.6", ranges=[(0, 2), (7, 3)], size=50000, package=("libc6", "2.36-9"))
    libc.unused = [(1, 2)]
    return [profile("boot", [missing, libc], stages=["early", "late"]), profile("/usr/bin/x", [missing, libc])]


def file_of(pkgs=b"\0", files=b"\0", keys=b"\0"):
    """A file with right checksums, whatever its sections say."""
    return container.write([(b"PKGS", pkgs, 1 << 30), (b"FILE", files, 1 << 30), (b"KEYS", keys, 1 << 30)])


def test_a_set_comes_back():
    found = read(write_set(some_set()))
    assert [one.key for one in found] == ["/usr/bin/x", "boot"]
    boot, expected = found[1], some_set()[0]
    assert (boot.stages, boot.policy, boot.timeline_ns) == (["early", "late"], (4,), 10**9)
    assert boot.entries == expected.entries


def test_what_headstart_writes_is_read():
    # crates/model/src/format/tests/profile_set.rs writes it.
    found = read((DATA / "exported.profiles").read_bytes())
    assert [one.key for one in found] == ["/usr/bin/x", "boot"]
    for one in found:
        missing, libc = one.entries
        assert (missing.path, missing.size, missing.ranges) == (b"/etc/ld.so.preload", None, [])
        assert (libc.path, libc.package) == (b"/usr/lib/libc.so.6", ("libc6", "2.36-9+deb12u10"))
        assert [(r.start, r.pages, r.weight) for r in libc.ranges] == [(0, 3, 1.0)]


def test_the_limits_are_the_formats():
    text = (ROOT / "crates/model/src/limits.rs").read_text()
    units = {"KIB": 1 << 10, "MIB": 1 << 20}
    found = {
        name: eval(value, {}, units)  # noqa: S307: a number of the project's own source
        for name, value in re.findall(r"^    (\w+) = ([\w *+<]+), \w+, \"", text, re.M)
    }
    assert len(found) > 50
    own = {name for name in vars(limits) if name.isupper()} - {"KIB", "MIB", "TAIL_PAGES", "MACHINES", "STATUS", "IMAGE"}
    assert {name: getattr(limits, name) for name in own} == {name: found[name] for name in own}


def test_a_cut_or_changed_file_is_damaged_and_nothing_else():
    data = write_set(some_set())
    for length in range(len(data)):
        with pytest.raises(Damaged):
            read(data[:length])
    changes = random.Random(1)
    for _ in range(3000):
        at = changes.randrange(len(data))
        changed = bytearray(data)
        changed[at] ^= 1 << changes.randrange(8)
        try:
            assert read(bytes(changed)) == read(data), "what no checksum covers means nothing"
        except Damaged:
            pass


def test_sections_that_say_anything_are_refused_or_read_in_bounds():
    plain = {}
    data = write_set(some_set())
    table = container.sections(data)
    for tag in (b"PKGS", b"FILE", b"KEYS"):
        plain[tag] = container.section(data, table, tag, 1 << 20).data
    changes = random.Random(2)
    refused = 0
    for _ in range(5000):
        parts = {tag: bytearray(text) for tag, text in plain.items()}
        tag = changes.choice(list(parts))
        for _ in range(changes.randint(1, 3)):
            parts[tag][changes.randrange(len(parts[tag]))] = changes.choice([0, 1, 0x7F, 0x80, 0xFF, changes.randrange(256)])
        try:
            read(file_of(bytes(parts[b"PKGS"]), bytes(parts[b"FILE"]), bytes(parts[b"KEYS"])))
        except Damaged:
            refused += 1
    assert refused > 2000


@pytest.mark.parametrize(
    "why, data",
    [
        ("no file of profiles", b"HSPROFIL" + bytes(100)),
        ("more than 8192 packages", file_of(pkgs=varint(9000))),
        ("more than 32768 files", file_of(files=varint(1 << 40))),
        ("its list of files is cut", file_of(files=varint(30000))),
        ("more than 512 profiles", file_of(keys=varint(513))),
        ("too large", file_of(pkgs=b"\xff" * 9 + b"\x7f")),
        ("too long", file_of(pkgs=b"\xff" * 12)),
        ("no UTF-8", file_of(pkgs=varint(1) + string(b"\xff") + string(b"1"))),
        ("no name or version", file_of(pkgs=varint(1) + string(b"a\nb") + string(b"1"))),
        ("no path as headstart spells it", file_of(files=varint(1) + string(b"/a/../b") + b"\0\0\0")),
        ("no path as headstart spells it", file_of(files=varint(1) + string(b"a") + b"\0\0\0")),
        ("no path as headstart spells it", file_of(files=varint(1) + string(b"/a//b") + b"\0\0\0")),
        ("4095 are allowed", file_of(files=varint(1) + string(b"/" + b"a" * 4095) + b"\0\0\0")),
        ("not listed", file_of(files=varint(1) + string(b"/a") + b"\0\1\5\1\0")),
        ("out of order", file_of(files=varint(2) + (string(b"/a") + b"\0\0\0") * 2)),
        ("1048576 are allowed", container.write([(b"PKGS", bytes(2 << 20), 1 << 30)])),
    ],
)
def test_what_is_wrong_is_named(why, data):
    with pytest.raises(Damaged, match=why):
        read(data)


def test_a_section_that_decodes_to_more_than_it_states_is_refused():
    data = bytearray(container.write([(b"PKGS", bytes(1 << 20), 1 << 30)]))
    # The row's decoded length, and the header's checksum made right again.
    struct.pack_into("<Q", data, 32 + 24, 100)
    struct.pack_into("<I", data, 24, 0)
    struct.pack_into("<I", data, 24, zlib.crc32(data[: 32 + 40]))
    with pytest.raises(Damaged, match="cannot be decoded|not the length"):
        read(bytes(data))


def test_a_writer_keeps_the_limits():
    long = [entry(f"/{'x' * 4000}/{number:06}", 1) for number in range(4000)]
    with pytest.raises(ValueError, match="are allowed"):
        write_set([profile("/usr/bin/x", long)])
