"""Exported profiles become rows of a fleet.

Each file is one machine's. It gets a random number: a hash of its bytes with a key that is thrown away, so a file that
is there twice is one machine, and nobody can tell from the table whose it was. A file that cannot be read is an error
of its own, the others go on.
"""

import hashlib
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headstart_fleet import limits, names
from headstart_fleet.container import Damaged
from headstart_fleet.profiles import Entry, Profile, read
from headstart_fleet.tables import BLOCK, PARTS, SCHEMA, Refused

#: What `headstart profile export` is told to write by convention.
SUFFIXES = (".profiles", ".profile")
#: Longer than any start takes, microseconds: a day. What says more is cut to it.
LONGEST = 86_400 * 10**6
#: Rows that are written at once: some 200 MB of memory.
ROWS = 1 << 20


@dataclass
class Collected:
    """What became of the files."""

    machines: int = 0
    rows: int = 0
    keys_left_out: int = 0
    paths_left_out: int = 0
    errors: list[str] = field(default_factory=list)


def files_below(places: list[str]) -> list[Path]:
    """The files of profiles that arguments name: files, and what lies below directories."""
    files = []
    for place in map(Path, places):
        if not place.is_dir():
            # What does not exist is an error of its own when it is read.
            files.append(place)
        else:
            files += sorted(path for path in place.rglob("*") if path.suffix in SUFFIXES)
        if len(files) > limits.MACHINES:
            raise Refused(f"more than {limits.MACHINES} files of profiles: collect them in several parts")
    return files


def read_file(path: Path, most: int) -> bytes:
    """A regular file of at most `most` bytes. Anything else is an `OSError` or a `Damaged`."""
    # Does not wait for a writer of a pipe, and follows no last link: a directory may be writable by others.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise Damaged("it is no regular file")
        data = file.read(most + 1)
    if len(data) > most:
        raise Damaged(f"it has more than {most} bytes")
    return data


def hashed(*values: object) -> int:
    """A hash of 63 bits that is never 0."""
    # What separates the values is in none of them: paths have no NUL, keys no control character.
    text = "\0".join("" if value is None else str(value) for value in values)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1 or 1


def blocks(entry: Entry, profile: Profile) -> str:
    """The pages that a machine votes for, as the column `ranges` has them."""
    unit = profile.page_size // BLOCK
    threshold = profile.threshold()
    pieces: list[list[int]] = []
    part_ns = max(1, profile.timeline_ns // PARTS)
    for one in entry.ranges:
        if one.weight < threshold:
            continue
        part = min(PARTS, max(0, one.first_use_ns - entry.first_use_ns) // part_ns)
        for start, end in _without(one.start, one.start + one.pages, entry.unused):
            if pieces and pieces[-1][1] == start * unit and pieces[-1][2] == part:
                pieces[-1][1] = end * unit
            else:
                pieces.append([start * unit, end * unit, part])
    return ",".join(f"{start}+{end - start}+{part}" for start, end, part in pieces)


def _without(start: int, end: int, holes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What is left of a range without some others."""
    if not holes:
        return [(start, end)]
    left, at = [], start
    for hole, hole_end in sorted(holes):
        if hole_end <= at or hole >= end:
            continue
        if hole > at:
            left.append((at, hole))
        at = max(at, hole_end)
    if at < end:
        left.append((at, end))
    return left


def rows_of(profile: Profile, machine: int, image: str) -> tuple[list[tuple], int]:
    """The rows of a profile, and how many of its paths are left out."""
    key, threshold, left_out = profile.key, profile.threshold(), 0
    head = (machine, image, key, profile.page_size, min(profile.runs, 1 << 30))
    times = (profile.timeline_ns, profile.waited_ns, profile.cpu_ns)
    head += tuple(None if time is None else min(time // 1000, LONGEST) for time in times)
    nothing = (None,) * 4
    rows = [head + (0, 0, 0, 0, hashed(key), *nothing, 0, profile.stages[0], 1.0, 0, "")]
    for entry in profile.entries:
        # What the machine itself would not plan is no vote.
        if entry.weight < threshold:
            continue
        try:
            path = entry.path.decode()
        except UnicodeDecodeError:
            left_out += 1
            continue
        size = None if entry.size is None else min(entry.size, (1 << 63) - 1)
        if not names.may_leave(path, entry.package is not None) or not path.isprintable():
            left_out += 1
            continue
        package, version = entry.package or (None, None)
        content = hashed(path, size, package, version)
        unit = hashed(package, version) if package else content
        stage, ranges = profile.stages[entry.stage], blocks(entry, profile)
        use = hashed(key, content, entry.need, stage, ranges)
        what = (content, hashed(key, content), hashed(key, path), unit, use, path, size, package, version, entry.need, stage)
        rows.append(head + what + (entry.weight, min(entry.first_use_ns // 1000, LONGEST), ranges))
    return rows, left_out


def in_processes(read_one: Callable, files: list[Path], jobs: int, *more: Iterable) -> Iterator:
    """What reading each file comes to, in the order of the files, of which `jobs` are read at once."""
    chunk = max(1, min(16, len(files) // (jobs * 4) or 1))
    with ProcessPoolExecutor(jobs) as pool:
        try:
            yield from pool.map(read_one, files, *more, chunksize=chunk)
        except BrokenExecutor:
            raise Refused("a process that read files was ended, as for want of memory: try fewer --jobs") from None


def unreadable(path: Path, error: OSError | Damaged) -> str:
    """Why a file cannot be read."""
    return f"{path}: {error.strerror if isinstance(error, OSError) else error}"


def read_machine(path: Path, salt: bytes, image: str) -> tuple[int, list[tuple], int, int] | str:
    """A machine's number and rows, and how many keys and paths are left out; or why its file cannot be read."""
    try:
        data = read_file(path, limits.FILE)
        profiles = read(data)
    except (OSError, Damaged) as error:
        return unreadable(path, error)
    machine = int.from_bytes(hashlib.blake2b(data, digest_size=8, key=salt).digest(), "little") >> 1
    rows, keys, paths = [], 0, 0
    for profile in profiles:
        if not names.key_may_leave(profile.key):
            keys += 1
            continue
        more, left_out = rows_of(profile, machine, image)
        rows += more
        paths += left_out
    return machine, rows, keys, paths


def image_of(path: Path, image: str | None, by_directory: bool) -> str:
    """What machines of this kind are called."""
    name = path.parent.name if by_directory else image or "default"
    if not name.isprintable() or len(name.encode()) > limits.IMAGE or not name:
        raise Refused(f"{name!r} cannot be the name of an image: name the directory otherwise, or use --image")
    return name


def collect(
    places: list[str], output: Path, *, image: str | None = None, by_directory: bool = False, jobs: int = 1
) -> Collected:
    """Reads files of profiles into one Parquet file, which is written whole or not at all."""
    files = files_below(places)
    images = [image_of(path, image, by_directory) for path in files]
    done, seen, salt = Collected(), set(), os.urandom(32)
    temporary = output.with_name(f".{output.name}.{os.getpid()}.new")
    waiting: list[tuple] = []
    try:
        with pq.ParquetWriter(temporary, SCHEMA, compression="zstd") as writer:
            for read_one in in_processes(read_machine, files, jobs, repeat(salt), images):
                if isinstance(read_one, str):
                    done.errors.append(read_one)
                    print(f"headstart-fleet: {read_one}", file=sys.stderr)
                    continue
                machine, rows, keys, paths = read_one
                if machine in seen:
                    continue
                seen.add(machine)
                done.machines += 1
                done.rows += len(rows)
                done.keys_left_out += keys
                done.paths_left_out += paths
                waiting += rows
                if len(waiting) >= ROWS:
                    writer.write_table(_table(waiting))
                    waiting = []
            writer.write_table(_table(waiting))
        if not done.machines:
            raise Refused("there is no file of profiles that could be read: `headstart profile export` writes one")
        os.replace(temporary, output)
    finally:
        temporary.unlink(missing_ok=True)
    return done


def _table(rows: list[tuple]) -> pa.Table:
    columns = zip(*rows) if rows else repeat((), len(SCHEMA))
    return pa.table([pa.array(column, kind.type) for column, kind in zip(columns, SCHEMA)], schema=SCHEMA)
