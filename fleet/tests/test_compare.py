"""How the rules do on machines that were left out, and on machines with other versions."""

import json
import random

import pytest
from support import collected, entry, profile

from headstart_fleet import compare, queries, tables
from headstart_fleet.cli import main

KEY = "/usr/bin/x"


def scores(fleet, capsys, *options):
    capsys.readouterr()
    assert main(["compare", fleet, "--json", "--threads", "2", *options]) == 0
    return json.loads(capsys.readouterr().out)


def test_recall_and_over_read_are_of_the_machine_that_is_left_out(tmp_path, capsys):
    def machine(pages):
        return [profile(KEY, [entry("/usr/lib/libc.so.6", size=50000, ranges=[pages], package=("libc6", "1"))])]

    # Left out in turn. The one that uses four pages: two others use the first two, and all of what they use is read.
    fleet = collected(tmp_path, {"a": machine((0, 2)), "b": machine((0, 2)), "c": machine((0, 4))})
    found = scores(fleet, capsys, "--k", "1")
    # Votes of two: a and b are left out with (0,2) and (2,2) each seen by 2 and 1 of two, which is half.
    assert found["rules"]["votes"][KEY] == found["rules"]["votes"]["all"]
    assert found["rules"]["votes"]["all"]["recall"] == pytest.approx((2 + 2 + 2) / 8)
    assert found["rules"]["votes"]["all"]["over_read"] == pytest.approx((2 + 2 + 0) / 8)
    assert found["rules"]["intersection"]["all"]["recall"] == pytest.approx(6 / 8)
    assert found["rules"]["intersection"]["all"]["over_read"] == 0
    assert found["best"] == "intersection"


def test_a_file_that_is_not_there_is_not_read(tmp_path, capsys):
    libc = entry("/usr/lib/libc.so.6", 10, package=("libc6", "1"))
    plugin = entry("/usr/lib/plugin.so", 10, package=("plugin", "1"))
    data = entry("/usr/share/x/data", 10, package=("libc6", "1"))
    machines = {
        # Has the package of `data`, and does not use it; has no plugin.
        "without": [profile(KEY, [libc])],
        **{name: [profile(KEY, [libc, plugin, data])] for name in "abc"},
    }
    found = scores(collected(tmp_path, machines), capsys)["rules"]["votes"]["all"]
    assert found["recall"] == 1.0
    assert found["over_read"] == pytest.approx(10 / 100), "of 10 + 3 * 30 pages that are used"


def test_of_another_version_only_what_is_certain_is_read(tmp_path, capsys):
    def machine(version, pages, size=80000):
        return [profile(KEY, [entry("/usr/lib/libc.so.6", size=size, ranges=[pages], package=("libc6", version))])]

    machines = {name: machine("1", (0, 4)) for name in "abc"} | {"d": machine("1", (0, 6)), "e": machine("2", (0, 8), 70000)}
    con = tables.connect("256MB", 1)
    try:
        tables.open_fleet(con, [collected(tmp_path, machines)])
        found = held_out(con, "version = '2'")
    finally:
        tables.close(con)
    # Of five pages one is used by three of four machines alone.
    assert (found.used, found.hit, found.read) == (8, 4, 4)


def held_out(con, which, rule="votes"):
    """The score, in blocks, of machines of which a row is like that, with what the others have in common."""
    con.execute(f"CREATE TEMP TABLE old AS SELECT DISTINCT machine FROM fleet WHERE {which}")
    con.execute("CREATE TEMP TABLE held AS SELECT * FROM fleet WHERE machine IN (FROM old)")
    con.execute("CREATE TEMP TABLE learned AS SELECT * FROM fleet WHERE machine NOT IN (FROM old)")
    con.execute("CREATE OR REPLACE TEMP VIEW fleet AS SELECT * FROM learned")
    queries.run(con, "votes", k=2)
    queries.keep(con, rule, 0.5, 64)
    queries.run(con, "held")
    score = compare.Score()
    for _, used, hit, read in con.execute("SELECT * FROM held_scores").fetchall():
        score.add(used, hit, read)
    return score


def start(draw, version_of, seed):
    """A start of 300 files of 60 packages; a version changes six of its package's files in ten, in size and place."""
    fixed, found = random.Random(seed), []
    for number in range(300):
        package, large = number % 60, fixed.random() < 0.2
        pages = fixed.randrange(100, 800) if large else fixed.randrange(1, 12)
        version = version_of(package)
        changes = random.Random(f"{seed} {number} {version}")
        changed = version > 0 and changes.random() < 0.6
        size = (pages + changed * changes.randrange(1, 3)) * 4096 - 100
        # Of an executable some functions are read, and of another version others too, a few pages further.
        ranges = [(0, -(-size // 4096))]
        if large:
            moved = changes.randrange(0, 4) if changed else 0
            ranges = [(at * pages // 8 + moved, pages // 16) for at in range(8) if fixed.random() < 0.7] or [(0, 4)]
        if draw.random() < 0.95:
            found.append(
                entry(f"/usr/lib/f{number}", size=size, ranges=ranges, package=(f"p{package}", f"1.{version}"), use_ms=number)
            )
    return [profile(KEY, found)]


@pytest.mark.parametrize("replaced, least", [(0.0, 0.95), (0.1, 0.9), (0.3, 0.85), (0.6, 0.75)])
def test_how_much_a_profile_is_worth_after_updates(tmp_path, replaced, least, capsys):
    """Eight machines have learned; two others have other versions of a share of all packages."""
    draw = random.Random(5)
    machines = {f"new{at}": start(draw, lambda package: 0, 1) for at in range(8)}
    for at in range(2):
        old = random.Random(at)
        other = {package for package in range(60) if old.random() < replaced}
        machines[f"old{at}"] = start(draw, lambda package, other=other: int(package in other), 1)
        machines[f"old{at}"][0].entries.append(entry("/var/lib/old", 1))
        machines[f"old{at}"][0].entries.sort(key=lambda one: one.path)
    con = tables.connect("256MB", 2)
    try:
        tables.open_fleet(con, [collected(tmp_path, machines)])
        found = held_out(con, "path = '/var/lib/old'")
    finally:
        tables.close(con)
    with capsys.disabled():
        print(f"{replaced:4.0%} of packages replaced: recall {found.recall:.1%}, over-read {found.over_read:.1%}")
    assert found.recall > least
    assert found.over_read < 0.15


def test_a_fleet_of_one_machine_cannot_be_compared(tmp_path, capsys):
    fleet = collected(tmp_path, {"a": [profile(KEY, [entry("/usr/bin/x")])]})
    assert main(["compare", fleet]) == 1
    assert "two at least are needed" in capsys.readouterr().err
