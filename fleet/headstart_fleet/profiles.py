"""headstart-profiles(5): files of profiles, read with all limits of the Rust decoder, and written."""

import math
import unicodedata
from dataclasses import dataclass, field

from headstart_fleet import limits
from headstart_fleet.container import F32, F64, Damaged, Values, section, sections, string, varint, write

#: What of an entry is needed besides its pages, as the format counts them.
NEEDS = ("missing", "stat", "list", "open")
MISSING, STAT, LIST, OPEN = range(4)
#: How runs are merged, as the format counts it.
DECAY, UNION, INTERSECTION, K_OF_N, BOOT = range(5)
#: The largest offset in a file, bytes: loff_t.
LAST_OFFSET = (1 << 63) - 1


@dataclass(slots=True)
class Range:
    """Pages of a file."""

    start: int
    pages: int
    weight: float
    first_use_ns: int
    stage: int = 0


@dataclass(slots=True)
class Entry:
    """What a profile knows of a path. `size` (bytes) and `package` (name and version) are those of its file."""

    path: bytes
    size: int | None
    package: tuple[str, str] | None
    need: int
    weight: float
    first_use_ns: int
    stage: int = 0
    ranges: list[Range] = field(default_factory=list)
    #: Pages that no start touched, though they are in a range: start, and the page behind the last.
    unused: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class Profile:
    """What the starts of a key need."""

    key: str
    page_size: int
    runs: int
    mass: float
    cpu_ns: int | None
    timeline_ns: int
    waited_ns: int
    policy: tuple[int, ...]
    stages: list[str]
    entries: list[Entry]

    def threshold(self) -> float:
        """The weight from which on a plan takes something up."""
        kind = self.policy[0]
        if kind == K_OF_N:
            _, k, n = self.policy
            return (k - 0.5) / n if n else 0.0
        return {DECAY: 0.5, UNION: 0.0, INTERSECTION: 1.0, BOOT: 0.3}[kind]


class _Left:
    """How many elements the lists of all profiles together may still have."""

    def __init__(self):
        self.entries, self.ranges, self.tails, self.touches = (
            limits.SET_ENTRIES,
            limits.RANGES,
            limits.TAIL_RANGES,
            limits.TOUCH_RANGES,
        )


def is_printable(text: str) -> bool:
    """Whether a text has no control character."""
    return text.isprintable() or not any(unicodedata.category(one) == "Cc" for one in text)


def read(data: bytes) -> list[Profile]:
    """The profiles of a file, which is checked as a whole."""
    if len(data) > limits.FILE:
        raise Damaged(f"it has {len(data)} bytes, {limits.FILE} are allowed")
    rows = sections(data)
    packages = _packages(section(data, rows, b"PKGS", limits.PKGS))
    files = _files(section(data, rows, b"FILE", limits.SET_FILE), packages)
    values = section(data, rows, b"KEYS", limits.KEYS)
    left, profiles = _Left(), []
    for _ in range(values.count("profiles", limits.PROFILES)):
        profile = _profile(values, files, left)
        if profiles and profiles[-1].key.encode() >= profile.key.encode():
            raise Damaged(f"the key {profile.key!r} is out of order")
        profiles.append(profile)
    return profiles


def _packages(values: Values) -> list[tuple[str, str]]:
    packages = []
    for _ in range(values.count("packages", limits.PACKAGES)):
        package = values.text(limits.PACKAGE_TEXT), values.text(limits.PACKAGE_TEXT)
        if not all(text and is_printable(text) for text in package):
            raise Damaged("a package has no name or version, or one that is no text")
        packages.append(package)
    return packages


def check_path(path: bytes) -> None:
    """Whether a path has the one spelling that it may have."""
    if len(path) > limits.PATH:
        raise Damaged(f"a path has {len(path)} bytes, {limits.PATH} are allowed")
    parts = path.split(b"/")
    wrong = not path.startswith(b"/") or b"\0" in path or b"." in parts or b".." in parts
    if wrong or (path != b"/" and b"" in parts[1:]):
        raise Damaged(f"{path[:80]!r} is no path as headstart spells it")


def _files(values: Values, packages: list[tuple[str, str]]) -> list[tuple]:
    files, total, last = [], 0, None
    for _ in range(values.count("files", limits.SET_ENTRIES)):
        path = values.string()
        overlay = values.string() if values.flag() else None
        size = values.number() if values.flag() else None
        package = values.number(32) if values.flag() else None
        for one in (path, overlay):
            if one is not None:
                check_path(one)
                total += len(one)
        if total > limits.SET_ENTRY_BYTES:
            raise Damaged(f"it has more than {limits.SET_ENTRY_BYTES} bytes of paths")
        # None goes before any value.
        order = (path, overlay is not None, overlay or b"", size is not None, size or 0)
        if last is not None and last >= order:
            raise Damaged(f"{path[:80]!r} is out of order")
        last = order
        if package is not None and (size is None or package >= len(packages)):
            raise Damaged(f"{path[:80]!r} is of a package that is not listed, or no file")
        files.append((path, size, None if package is None else packages[package]))
    return files


def _weight(values: Values) -> float:
    weight = values.f32()
    if not 0.0 <= weight <= 1.0:
        raise Damaged(f"a weight is {weight}")
    return weight


def _ranges(values: Values, most: int, page_size: int, stages: int) -> list[Range]:
    ranges, end = [], 0
    for _ in range(values.count("ranges", most)):
        one = Range(values.number(), values.number(32), _weight(values), values.number(), values.number(16))
        last = one.start + one.pages
        if one.start < end or not one.pages or last * page_size > LAST_OFFSET or one.stage >= stages:
            raise Damaged(f"the pages at {one.start} are out of order, none, or of no stage")
        end = last
        ranges.append(one)
    return ranges


def _profile(values: Values, files: list[tuple], left: _Left) -> Profile:
    key = values.text(limits.KEY)
    if not key or not is_printable(key):
        raise Damaged(f"{key[:80]!r} is no key")
    page_size, runs, mass = values.number(32), values.number(32), values.f64()
    if page_size not in (4096, 8192, 16384, 32768, 65536) or not math.isfinite(mass) or mass < 0:
        raise Damaged(f"the profile of {key[:80]!r} has pages of {page_size} bytes, or votes that are no number")
    cpu_ns = values.number() if values.flag() else None
    timeline_ns, waited_ns, kind = values.number(), values.number(), values.number(32)
    if kind > BOOT:
        raise Damaged(f"the profile of {key[:80]!r} has the unknown policy {kind}")
    policy = (kind, values.number(16), values.number(16)) if kind == K_OF_N else (kind,)
    stages = [values.text(limits.STAGE_NAME) for _ in range(values.count("stages", limits.STAGES))]
    if not stages:
        raise Damaged(f"the profile of {key[:80]!r} has no stage")
    count = values.count("entries", left.entries)
    left.entries -= count
    entries, last = [], b""
    for _ in range(count):
        entry = _entry(values, files, left, page_size, len(stages))
        if entry.path <= last:
            raise Damaged(f"{entry.path[:80]!r} is out of order")
        last = entry.path
        entries.append(entry)
    return Profile(key, page_size, runs, mass, cpu_ns, timeline_ns, waited_ns, policy, stages, entries)


def _entry(values: Values, files: list[tuple], left: _Left, page_size: int, stages: int) -> Entry:
    index, need, weight = values.number(32), values.number(32), _weight(values)
    if index >= len(files) or need > OPEN:
        raise Damaged(f"there is no file {index}, or no need {need}")
    path, size, package = files[index]
    entry = Entry(path, size, package, need, weight, values.number(), values.number(16))
    if entry.stage >= stages:
        raise Damaged(f"{path[:80]!r} is of no stage")
    if values.flag():
        _weight(values)
    entry.ranges = _ranges(values, left.ranges, page_size, stages)
    left.ranges -= len(entry.ranges)
    tail = []
    if values.flag():
        # Read, and not kept: what changes in place is another file on each machine.
        tail = _ranges(values, min(left.tails, limits.TAIL_PAGES), page_size, stages)
        left.tails -= len(tail)
    if size is None and (entry.ranges or tail):
        raise Damaged(f"{path[:80]!r} has pages of an unknown file")
    if values.flag():
        for kind in ("touched", "once", "unused"):
            count = values.count("ranges of touches", left.touches)
            left.touches -= count
            pages = [(values.number(), values.number()) for _ in range(count)]
            if kind == "unused":
                entry.unused = pages
    return entry


def write_set(profiles: list[Profile]) -> bytes:
    """The profiles as a file. A `ValueError` names a limit that they exceed."""
    profiles = sorted(profiles, key=lambda profile: profile.key.encode())
    rows: dict[tuple[bytes, int | None], tuple[str, str] | None] = {}
    for profile in profiles:
        for entry in profile.entries:
            name = (entry.path, entry.size)
            rows[name] = rows.get(name) or (entry.package if entry.size is not None else None)
    order = sorted(rows, key=lambda row: (row[0], row[1] is not None, row[1] or 0))
    packages = {package: number for number, package in enumerate(sorted({*rows.values()} - {None}))}
    index = {row: number for number, row in enumerate(order)}
    listed = [varint(len(packages))]
    listed += [string(name.encode()) + string(version.encode()) for name, version in packages]
    files = [varint(len(order))]
    for path, size in order:
        package = rows[path, size]
        files.append(string(path) + b"\0" + _option(size))
        files.append(_option(None if package is None else packages[package]))
    keys = [varint(len(profiles))]
    keys += [_written(profile, index) for profile in profiles]
    parts = ((b"PKGS", listed, limits.PKGS), (b"FILE", files, limits.SET_FILE), (b"KEYS", keys, limits.KEYS))
    return write([(tag, b"".join(pieces), most) for tag, pieces, most in parts])


def _option(value: int | None) -> bytes:
    return b"\0" if value is None else b"\1" + varint(value)


def _written(profile: Profile, index: dict) -> bytes:
    out = [string(profile.key.encode()), varint(profile.page_size), varint(profile.runs), F64.pack(profile.mass)]
    out += [_option(profile.cpu_ns), varint(profile.timeline_ns), varint(profile.waited_ns)]
    out += [varint(number) for number in profile.policy]
    out += [varint(len(profile.stages)), *(string(stage.encode()) for stage in profile.stages)]
    out.append(varint(len(profile.entries)))
    for entry in sorted(profile.entries, key=lambda entry: entry.path):
        out += [varint(index[entry.path, entry.size]), varint(entry.need), F32.pack(entry.weight)]
        out += [varint(entry.first_use_ns), varint(entry.stage), b"\0", varint(len(entry.ranges))]
        for one in entry.ranges:
            out += [varint(one.start), varint(one.pages), F32.pack(one.weight)]
            out += [varint(one.first_use_ns), varint(one.stage)]
        out.append(b"\0")
        if entry.unused:
            out += [b"\1\0\0", varint(len(entry.unused))]
            out += [varint(start) + varint(end) for start, end in entry.unused]
        else:
            out.append(b"\0")
    return b"".join(out)
