"""`fleet report`: what headstart brought on the machines of a fleet, as one HTML page.

It reads what `headstart status --json` prints on each machine. Such a document is untrusted: a wrong one is an error of
its own, and all that is shown of it is escaped.
"""

import json
import math
import random
import statistics
from dataclasses import dataclass, field
from pathlib import Path

from headstart_fleet import limits
from headstart_fleet.collect import in_processes, read_file, unreadable
from headstart_fleet.container import Damaged
from headstart_fleet.tables import Refused

VERDICTS = ("faster", "slower", "no-difference", "too-few")


@dataclass(slots=True)
class OfKey:
    """What one machine says of one key."""

    key: str
    verdict: str
    #: Medians, seconds; none where there are no such starts.
    with_s: float | None
    without_s: float | None
    replays: int
    #: Pages of all replays: used by the starts, and read ahead and not used.
    needed: int
    wasted: int
    bypassed: bool

    @property
    def gain(self) -> float | None:
        """The share of a start's time that is saved; negative where starts are slower."""
        if not self.with_s or not self.without_s:
            return None
        return 1 - self.with_s / self.without_s


@dataclass
class Fleet:
    """What all machines say."""

    machines: dict[str, list[OfKey]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


def _count(value: object) -> int:
    """A number of a document: not negative, and small enough to be added up."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 64:
        raise Damaged(f"{str(value)[:40]!r} stands where a number is expected")
    return value


def _seconds(group: object) -> float | None:
    median = group["median_ns"]
    return None if median is None else _count(median) / 1e9


def of_key(status: object) -> OfKey:
    """One element of the document."""
    try:
        key, comparison = status["key"], status["comparison"]
        verdict = comparison["verdict"]
        if not isinstance(key, str) or not 0 < len(key) <= limits.KEY or verdict not in VERDICTS:
            raise Damaged("a key or a verdict is none that headstart knows")
        replays = [outcome for outcome in status["outcomes"] if outcome["mode"] == "replay"]
        needed = wasted = 0
        for outcome in replays:
            precision = outcome["precision"]
            # What a start needed is known only where it was recorded.
            if precision is None or outcome["not_learned"] is not None:
                continue
            needed += _count(precision["needed_pages"])
            wasted += sum(_count(stage["wasted_pages"]) for stage in outcome["stages"])
        with_s, without_s = _seconds(comparison["with"]), _seconds(comparison["without"])
        bypassed = status["bypass"] is not None
        return OfKey(key, verdict, with_s, without_s, len(replays), needed, wasted, bypassed)
    except (KeyError, TypeError, IndexError) as error:
        raise Damaged(f"it lacks {error}: it is no output of `headstart status --json`") from None


def of_machine(data: bytes) -> list[OfKey]:
    """A document."""
    try:
        document = json.loads(data, parse_constant=lambda name: math.nan)
    except (ValueError, RecursionError):
        raise Damaged("it is no JSON: `headstart status --json` writes it") from None
    if not isinstance(document, list) or len(document) > limits.SET_ENTRIES:
        raise Damaged("it is no list of keys: write it by `headstart status --json`, without a KEY")
    return [of_key(status) for status in document]


def read_machine(path: Path) -> list[OfKey] | str:
    """What one machine says, or why its document cannot be read."""
    try:
        return of_machine(read_file(path, limits.STATUS))
    except (OSError, Damaged) as error:
        return unreadable(path, error)


def read(places: list[str], with_names: bool, jobs: int) -> Fleet:
    """The documents that arguments name: files, and the `.json` files below directories."""
    files = []
    for place in map(Path, places):
        files += sorted(place.rglob("*.json")) if place.is_dir() else [place]
    if len(files) > limits.MACHINES:
        raise Refused(f"more than {limits.MACHINES} documents: report on them in several parts")
    fleet, numbers = Fleet(), list(range(1, len(files) + 1))
    # In their order by name they would tell whose they are.
    random.SystemRandom().shuffle(numbers)
    for number, path, said in zip(numbers, files, in_processes(read_machine, files, jobs)):
        if isinstance(said, str):
            fleet.errors.append(said)
            continue
        name = path.stem if with_names else f"machine {number}"
        fleet.machines[name if name not in fleet.machines else f"{name} ({number})"] = said
    if not fleet.machines:
        raise Refused("there is no document that could be read: `headstart status --json >MACHINE.json` writes one")
    return fleet


@dataclass
class Row:
    """A key on all machines that have it."""

    key: str
    machines: int = 0
    verdicts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(VERDICTS, 0))
    bypassed: int = 0
    replays: int = 0
    needed: int = 0
    wasted: int = 0
    gains: list[float] = field(default_factory=list)
    saved_s: float = 0.0

    def add(self, one: OfKey) -> None:
        self.machines += 1
        self.verdicts[one.verdict] += 1
        self.bypassed += one.bypassed
        self.replays += one.replays
        self.needed += one.needed
        self.wasted += one.wasted
        if one.gain is not None:
            self.gains.append(one.gain)
            self.saved_s += (one.without_s - one.with_s) * one.replays

    @property
    def over_read(self) -> float | None:
        """Pages read in vain for each page that starts needed."""
        return self.wasted / self.needed if self.needed else None

    @property
    def gain(self) -> float | None:
        """The median machine's."""
        return statistics.median(self.gains) if self.gains else None


def rows(fleet: Fleet) -> list[Row]:
    """The keys, those of most saved time first."""
    found: dict[str, Row] = {}
    for keys in fleet.machines.values():
        for one in keys:
            found.setdefault(one.key, Row(one.key)).add(one)
    return sorted(found.values(), key=lambda row: (-row.saved_s, row.key))


def slower(fleet: Fleet) -> list[tuple[str, OfKey]]:
    """Machines and keys whose starts are slower with headstart, or seem to be, the worst first."""
    found = [
        (name, one)
        for name, keys in fleet.machines.items()
        for one in keys
        if one.verdict == "slower" or (one.gain is not None and one.gain < -0.02 and one.verdict != "faster")
    ]
    return sorted(found, key=lambda pair: (pair[1].verdict != "slower", pair[1].gain or 0, pair[0]))
