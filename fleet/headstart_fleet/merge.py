"""A fleet becomes files of profiles, one for each image, which `headstart profile import` takes."""

import os
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from headstart_fleet import limits, queries
from headstart_fleet.profiles import BOOT, DECAY, Entry, Profile, Range, write_set
from headstart_fleet.tables import BLOCK, PARTS, Refused

#: From which weight on a plan takes something up, of `boot` and of programs. What a rule keeps gets this weight at
#: least, else the machine that imports it would leave it out.
PLANNED = {"boot": 0.3}
PLANNED_OTHERS = 0.5
#: Of another file at the same path, as after an update, only pages of this weight are planned
#: (`crates/plan/src`). Otherwise a weight makes no difference once it is enough.
CERTAIN = 0.9
#: Neighbouring ranges become one where the times of their first uses differ by no more of these parts of a start.
SOON = 2


@dataclass
class Merged:
    """What was written for an image."""

    image: str
    file: Path
    bytes: int
    machines: int
    keys: int
    files: int
    data_bytes: int
    #: Entries for which the file has no room.
    left_out: int
    profiles: list[Profile] = field(default_factory=list)


def profiles_of(con: duckdb.DuckDBPyConnection, image: str) -> tuple[list[Profile], int]:
    """The profiles that were kept for an image, and how many entries the file has no room for."""
    heads = con.execute(
        "SELECT key, machines, page_size, timeline_us, waited_us, cpu_us FROM image_keys WHERE image = ?"
        f" ORDER BY machines DESC, key LIMIT {limits.PROFILES}",
        [image],
    ).fetchall()
    profiles = {}
    for key, machines, page_size, *times in heads:
        policy = BOOT if key == "boot" else DECAY
        timeline, waited, cpu = (None if time is None else int(time) * 1000 for time in times)
        profiles[key] = Profile(key, page_size, machines, float(machines), cpu, timeline, waited, (policy,), [], [])
    stages: dict[str, dict[str, float]] = defaultdict(dict)
    # What most machines have used comes first: of a fleet of many private files the last have no room.
    con.execute(
        "CREATE OR REPLACE TEMP TABLE room AS SELECT * FROM kept_files WHERE image = ?"
        f" ORDER BY machines DESC, path, key LIMIT {limits.SET_ENTRIES}",
        [image],
    )
    ranges = defaultdict(list)
    query = (
        "SELECT file, first, upto, part, share FROM kept_ranges"
        " WHERE image = ? AND file IN (SELECT file FROM room) ORDER BY file, first"
    )
    for file, *one in con.execute(query, [image]).fetchall():
        ranges[file].append(one)
    (all_files,) = con.execute("SELECT count(*) FROM kept_files WHERE image = ?", [image]).fetchone()
    rows = con.execute(
        "SELECT key, file, path, size, package, version, need, stage, first_use, share FROM room"
        " ORDER BY machines DESC, path, key"
    )
    room, taken = _Room(), 0
    for key, file, path, size, package, version, need, stage, first_use, share in rows.fetchall():
        if key not in profiles:
            continue
        profile = profiles[key]
        owner = (package, version) if package else None
        least = PLANNED.get(key, PLANNED_OTHERS)
        entry = Entry(path.encode(), size, owner, need, max(share, least), round(first_use * profile.timeline_ns))
        entry.ranges = _ranges(ranges.get(file, []), profile, entry, least)
        if not room.takes(entry):
            continue
        taken += 1
        profile.entries.append(entry)
        stages[key][stage] = min(stages[key].get(stage, 1.0), first_use)
        entry.stage = stage
    for key, profile in profiles.items():
        profile.stages = _order(stages[key])
        number = {name: index for index, name in enumerate(profile.stages)}
        for entry in profile.entries:
            entry.stage = number.get(entry.stage, len(number) - 1)
            for one in entry.ranges:
                one.stage = entry.stage
    return [profile for profile in profiles.values() if profile.entries], all_files - taken


def _order(stages: dict[str, float]) -> list[str]:
    """The stages in the order in which they begin, as many as a profile may have."""
    return sorted(stages, key=lambda name: (stages[name], name))[: limits.STAGES] or ["start"]


class _Room:
    """What a file of profiles still has room for."""

    def __init__(self):
        self.entries, self.ranges, self.bytes, self.packages = limits.SET_ENTRIES, limits.RANGES, limits.SET_ENTRY_BYTES, set()
        # PKGS has its own limit of bytes: two lengths of two bytes each.
        self.package_bytes = limits.PKGS - 16

    def takes(self, entry: Entry) -> bool:
        new = entry.package is not None and entry.package not in self.packages
        text = sum(len(part.encode()) + 2 for part in entry.package) if new else 0
        if new and (len(self.packages) == limits.PACKAGES or text > self.package_bytes):
            entry.package, text, new = None, 0, False
        if not self.entries or len(entry.ranges) > self.ranges or len(entry.path) > self.bytes:
            return False
        self.entries -= 1
        self.ranges -= len(entry.ranges)
        self.bytes -= len(entry.path)
        self.package_bytes -= text
        if new:
            self.packages.add(entry.package)
        return True


def _ranges(rows: list, profile: Profile, entry: Entry, least: float) -> list[Range]:
    """Ranges in the pages of the profile. A page counts if a block of it does."""
    unit = profile.page_size // BLOCK
    found: list[Range] = []
    for first, upto, part, share in rows:
        start, end = first // unit, -(-upto // unit)
        first_use = entry.first_use_ns + int(part * profile.timeline_ns / PARTS)
        weight = max(share, least)
        last = found[-1] if found else None
        if last:
            start = max(start, last.start + last.pages)
            if start >= end:
                continue
            touches = start == last.start + last.pages
            is_soon = abs(first_use - last.first_use_ns) * PARTS <= SOON * profile.timeline_ns
            if touches and is_soon and (weight >= CERTAIN) == (last.weight >= CERTAIN):
                last.pages += end - start
                last.weight = min(weight, last.weight)
                continue
        found.append(Range(start, end - start, weight, first_use))
    return found


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def images_of(con: duckdb.DuckDBPyConnection) -> list[tuple[str, int]]:
    """The images of the fleet, and how many machines each has."""
    return con.execute("SELECT image, count(*) FROM machines GROUP BY image ORDER BY image").fetchall()


def seen(con: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """How many files of keys the fleet has, and how many of them enough machines have used."""
    (files,) = con.execute("SELECT count(DISTINCT file) FROM counted").fetchone()
    (frequent,) = con.execute("SELECT count(*) FROM frequent").fetchone()
    return {"files_seen": files, "files_frequent": frequent}


def merge(
    con: duckdb.DuckDBPyConnection,
    output: Path,
    *,
    rule: str,
    share: float,
    k: int,
    candidates: int,
    times: dict[str, float] | None = None,
) -> list[Merged]:
    """Merges the view `fleet`. `output` is a file, or a directory that gets a file for each image."""
    queries.run(con, "votes", times, k=k)
    queries.keep(con, rule, share, candidates, times)
    images = images_of(con)
    if not output.is_dir() and len(images) > 1:
        names = ", ".join(name for name, _ in images[:5])
        raise Refused(f"{output} is no directory, and there are several images ({names}): make one, or use `-o DIR`")
    done = []
    for image, machines in images:
        profiles, left_out = profiles_of(con, image)
        if not profiles:
            continue
        path = output
        if output.is_dir():
            if image in (".", "..") or "/" in image:
                raise Refused(f"{image!r} cannot be the name of a file: collect with another --image")
            path = output / f"{image}.profiles"
        data = write_set(profiles)
        write_whole(path, data)
        entries = [entry for profile in profiles for entry in profile.entries]
        size = sum(
            one.pages * profile.page_size
            for profile in profiles
            for entry in profile.entries
            for one in entry.ranges
        )
        done.append(Merged(image, path, len(data), machines, len(profiles), len(entries), size, left_out, profiles))
    if not done:
        raise Refused(f"no file was used by {k} machines or more: collect more of them, or use a smaller --k")
    return done
