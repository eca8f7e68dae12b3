#!/usr/bin/env python3
"""What profiles of machines looked like before some days of updates.

    bench/ages.py ROOT FILE      writes when each package of a Debian root got its version: name,seconds since 1970

A package's files have no time after its last entry of the changelog, by which builds of Debian limit them, so the
latest is the day of its version. An archive has at most the version of the last release beside. So of a package that
was updated since, each file is of another version in the older profile; six files in ten, as in README.md, have another
size, and some of their pages lie further back. That is more than updates do: of 16 packages that Debian 12 had in two
versions on 2026-11-30, 26 of 3,638 files had another size, and 504 another content.
"""

import csv
import random
import stat
import sys
from dataclasses import replace
from pathlib import Path

from headstart_fleet.profiles import Entry, Profile, Range

#: Share of a package's files that have another size in another version.
CHANGED = 0.6
#: By how many pages, at most, the pages that are used lie elsewhere in a file that was changed.
MOVED = 3
DAY = 86_400


def dates(root: Path) -> dict[str, int]:
    """When each package of a root got its version, seconds since 1970; packages without files have no date."""
    found = {}
    for listed in sorted((root / "var/lib/dpkg/info").glob("*.list")):
        name, latest = listed.stem.split(":")[0], 0
        for path in listed.read_text().splitlines():
            try:
                facts = (root / path.lstrip("/")).lstat()
            except OSError:
                # Documentation that was left out.
                continue
            if stat.S_ISREG(facts.st_mode):
                latest = max(latest, int(facts.st_mtime))
        if latest:
            found[name] = latest
    return found


def updated(of_packages: dict[str, int], days: int) -> set[str]:
    """The packages that got their version in so many days before the newest of all."""
    newest = max(of_packages.values())
    return {name for name, at in of_packages.items() if at > newest - days * DAY}


def aged(profiles: list[Profile], packages: set[str], seed: int) -> list[Profile]:
    """The profiles of a machine on which these packages had their older version: the same one on each machine."""
    return [replace(one, entries=[_older(entry, one, packages, seed) for entry in one.entries]) for one in profiles]


def _older(entry: Entry, profile: Profile, packages: set[str], seed: int) -> Entry:
    if entry.package is None or entry.package[0] not in packages or entry.size is None:
        return entry
    name, version = entry.package
    draw = random.Random(f"{seed} {entry.path!r}")
    older = replace(entry, package=(name, f"{version}~older"))
    if draw.random() < CHANGED:
        moved = draw.randint(0, MOVED)
        older.size = entry.size + max(1, moved) * profile.page_size
        # The first pages have what loads the file.
        older.ranges = [_moved(one, moved) for one in entry.ranges]
        older.unused = [(start + moved, end + moved) if start else (start, end + moved) for start, end in entry.unused]
    return older


def _moved(one: Range, pages: int) -> Range:
    return replace(one, start=one.start + pages) if one.start else replace(one, pages=one.pages + pages)


def main() -> None:
    """Writes the dates of a root."""
    root, file = map(Path, sys.argv[1:])
    with open(file, "w", newline="") as out:
        csv.writer(out).writerows(sorted(dates(root).items()))


if __name__ == "__main__":
    main()
