"""The machines of bench/eleventh.py, and what their profiles looked like before updates."""

import os
import random
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support import collected, entry, merged, profile

from headstart_fleet.profiles import read, write_set

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
import ages  # noqa: E402
import eleventh  # noqa: E402

DAY = 86_400


def machines():
    return [eleventh.machine(number, 49, Path("/apt")) for number in range(10)]


def test_what_is_written_is_toml(tmp_path):
    table = {"a": 'x"y\\\n\t´ü', "b": [1, True, [["w", "{root}"]]], "c": [{"name": "m0", "file": {"d.sh": "#\n"}}]}
    eleventh.write_toml(tmp_path / "x.toml", table)
    assert tomllib.loads((tmp_path / "x.toml").read_text()) == table
    assert tomllib.loads(f"x = {eleventh.toml(eleventh.programs())}")["x"] == eleventh.programs()


def test_each_machine_is_another_and_the_same_every_time():
    one, again = machines(), machines()
    assert one == again
    for kind in (0, 1):
        commands = [setups[kind]["file"]["commands"] for setups in one]
        assert len(set(commands)) == 10
        # Three are without updates.
        assert ["dist-upgrade" in text for text in commands] == [number % 3 == 2 for number in range(10)]
        # Each has something that the eleventh has not.
        assert all(text.split("\napt install ")[1].splitlines()[0].split() for text in commands)


def test_the_scripts_are_ones_for_a_shell(tmp_path):
    recipes = {name: eleventh.of_lab("images", name) for name in eleventh.PROGRAMS}
    texts = [eleventh.starts(recipes), eleventh.DIFFER, eleventh.LEARN, eleventh.EXPORT]
    texts += [setup["file"]["commands"] for setups in machines() for setup in setups]
    for text in texts:
        subprocess.run(["sh", "-n"], input=text, text=True, check=True)
    # Every program is started, and what it makes is looked for.
    for name, recipe in recipes.items():
        assert f"--name {name} -- " in texts[0] and f"test -s {recipe['start']['produces']}\n" in texts[0]


def test_own_lines_go_into_the_files_of_the_lab(tmp_path):
    texts = {one["path"]: one["content"].lstrip("\n") for one in eleventh.programs()["file"]}
    for file, place, own in eleventh.OWN:
        path = tmp_path / "file"
        path.write_text(texts[file])
        for line in own:
            subprocess.run(["sed", "-i", f"{place} {line}", path], check=True)
        lines = path.read_text().splitlines()
        assert sorted(lines) == sorted(texts[file].splitlines() + own), file


def test_a_packages_date_is_that_of_its_newest_file(tmp_path):
    info = tmp_path / "var/lib/dpkg/info"
    info.mkdir(parents=True)
    (tmp_path / "usr").mkdir()
    for name, at in (("old", 5 * DAY), ("new", 100 * DAY)):
        (tmp_path / "usr" / name).write_text("x")
        os.utime(tmp_path / "usr" / name, (at, at))
    (info / "libx:amd64.list").write_text("/.\n/usr\n/usr/old\n/usr/share/doc/left-out\n/usr/new\n")
    (info / "y.list").write_text("/.\n/usr\n/usr/old\n")
    (info / "empty.list").write_text("/.\n/usr\n")
    assert ages.dates(tmp_path) == {"libx": 100 * DAY, "y": 5 * DAY}
    file = tmp_path / "dates.csv"
    subprocess.run([sys.executable, ages.__file__, tmp_path, file], check=True)
    assert eleventh.read_dates(file) == {"libx": 100 * DAY, "y": 5 * DAY}
    assert ages.updated(eleventh.read_dates(file), 30) == {"libx"}
    assert ages.updated(eleventh.read_dates(file), 96) == {"libx", "y"}


def learned(draw):
    """A start that reads 200 files of two packages; one in ten was not read by this machine."""
    files = [
        entry(f"/usr/lib/f{at:03}", 40, ranges=[(0, 2), (8, 4)], package=("new" if at % 2 else "kept", "1"), use_ms=at)
        for at in range(200)
    ]
    return profile("/usr/bin/x", [one for one in files if draw.random() < 0.9])


def test_files_of_updated_packages_were_others():
    one, other = (ages.aged([learned(random.Random(seed))], {"new"}, 49)[0] for seed in (1, 2))
    assert read(write_set([one]))[0] == one, "the format has it as it is"
    by_path = {entry.path: entry for entry in other.entries}
    older = [entry for entry in one.entries if entry.package == ("new", "1~older")]
    assert {entry.package for entry in one.entries} == {("kept", "1"), ("new", "1~older")}
    changed = [entry for entry in older if entry.size != 40 * 4096]
    assert len(changed) == pytest.approx(0.6 * len(older), rel=0.2)
    for entry_ in one.entries:
        # The same older file on all machines.
        assert by_path.get(entry_.path, entry_) == entry_
        places = [(one.start, one.pages) for one in entry_.ranges]
        moved = places[1][0] - 8
        assert places == [(0, 2 + moved), (8 + moved, 4)] and moved in range(ages.MOVED + 1)
        assert not moved or (entry_ in changed and entry_.size == (40 + moved) * 4096)


def test_what_is_merged_of_older_machines_is_of_older_files(tmp_path):
    packages = {"new"}
    older = {f"m{at}": ages.aged([learned(random.Random(at))], packages, 49) for at in range(10)}
    found = merged(collected(tmp_path, older), tmp_path / "votes.profiles")["/usr/bin/x"]
    assert len(found.entries) == 200
    assert {entry.package for entry in found.entries} == {("kept", "1"), ("new", "1~older")}
