"""Small fleets for the tests."""

from dataclasses import replace
from pathlib import Path

from headstart_fleet import tables
from headstart_fleet.cli import main
from headstart_fleet.profiles import BOOT, DECAY, OPEN, Entry, Profile, Range, read, write_set

PAGE = 4096


def entry(path, pages=4, *, size=None, package=None, weight=1.0, ranges=None, need=OPEN, use_ms=0):
    """A file that is read in full: `pages` pages, or `ranges` as (start, pages)."""
    ranges = [(0, pages)] if ranges is None else ranges
    size = pages * PAGE if size is None else size
    found = [Range(start, count, weight, use_ms * 10**6) for start, count in ranges]
    return Entry(path.encode(), size, package, need, weight, use_ms * 10**6, 0, found)


def profile(key, entries, *, page_size=PAGE, stages=None, cpu_ns=10**8):
    """What six starts of a second taught."""
    policy = (BOOT,) if key == "boot" else (DECAY,)
    return Profile(key, page_size, 6, 4.0, cpu_ns, 10**9, 5 * 10**8, policy, stages or ["start"], entries)


def write(directory: Path, machines: dict[str, list[Profile]]) -> None:
    """A file of profiles for each machine, by name. No two are equal, for equal files are one machine: each takes a
    millisecond more of the processor, and has seen a little more."""
    for number, (name, profiles) in enumerate(machines.items()):
        path = directory / f"{name}.profiles"
        path.parent.mkdir(parents=True, exist_ok=True)
        others = [
            replace(one, mass=one.mass + number / 10, cpu_ns=one.cpu_ns and one.cpu_ns + number * 10**6)
            for one in profiles
        ]
        path.write_bytes(write_set(others))


def collected(directory: Path, machines: dict[str, list[Profile]], *options: str) -> str:
    """Collects these machines; returns the fleet's file."""
    write(directory / "in", machines)
    fleet = str(directory / "fleet.parquet")
    assert main(["collect", str(directory / "in"), "-o", fleet, "--jobs", "1", *options]) == 0
    return fleet


def merged(fleet: str, output: Path, *options: str) -> dict[str, Profile]:
    """Merges a fleet of one image; the profiles by key."""
    assert main(["merge", fleet, "-o", str(output), "--threads", "2", *options]) == 0
    return {one.key: one for one in read(output.read_bytes())}


def paths(profile: Profile) -> list[str]:
    """The paths of a profile."""
    return [one.path.decode() for one in profile.entries]


def pages(profile: Profile, path: str) -> list[tuple[int, int]]:
    """The ranges of a path: first page, and how many."""
    (found,) = [one for one in profile.entries if one.path == path.encode()]
    return [(one.start, one.pages) for one in found.ranges]


def rows(fleet: str) -> list[tuple]:
    """All that is in a fleet."""
    con = tables.connect("256MB", 1)
    try:
        tables.open_fleet(con, [fleet])
        return con.execute("SELECT * FROM fleet").fetchall()
    finally:
        tables.close(con)
