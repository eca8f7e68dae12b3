"""What is kept of a fleet, by which rule, and how sure it is said to be."""

import os
from pathlib import Path

import pytest
from support import collected, entry, merged, pages, paths, profile

from headstart_fleet.cli import main
from headstart_fleet.profiles import BOOT, DECAY, MISSING, Entry, Range, read

KEY = "/usr/bin/x"
DATA = Path(__file__).parent / "data"


def libc(ranges, version="2.36-9", size=50000):
    return entry("/usr/lib/libc.so.6", ranges=ranges, size=size, package=("libc6", version))


def fleet_of(directory, *entries, key=KEY, **options):
    """A fleet of machines with one key, of which each has these files."""
    return collected(directory, {f"m{at}": [profile(key, each, **options)] for at, each in enumerate(entries)})


def test_votes_keep_what_a_share_of_those_has_used_who_have_the_file(tmp_path):
    whole, part = libc([(0, 2), (7, 3)]), libc([(0, 2)])
    # The plugin is on two of four machines, and used by both: all that have it.
    plugin = entry("/usr/lib/plugin.so", package=("plugin", "1"))
    rare = entry("/usr/lib/rare.so", package=("libc6", "2.36-9"))
    fleet = fleet_of(tmp_path, [whole, plugin], [whole, plugin, rare], [whole], [part])
    found = merged(fleet, tmp_path / "out", "--k", "1")[KEY]
    assert paths(found) == ["/usr/lib/libc.so.6", "/usr/lib/plugin.so"]
    assert pages(found, "/usr/lib/libc.so.6") == [(0, 2), (7, 3)]
    assert [one.weight for one in found.entries[0].ranges] == [1.0, 0.75]
    assert found.entries[1].weight == 1.0, "of the machines that have the package"
    found = merged(fleet, tmp_path / "out", "--k", "1", "--share", "0.8")[KEY]
    assert pages(found, "/usr/lib/libc.so.6") == [(0, 2)]
    found = merged(fleet, tmp_path / "out", "--k", "1", "--share", "0.2")[KEY]
    assert "/usr/lib/rare.so" in paths(found)
    assert found.entries[2].weight == 0.5, "as much as a plan asks for"


def test_a_start_takes_what_it_takes_in_the_middle_and_nothing_is_said_of_what_no_machine_told(tmp_path):
    found = merged(fleet_of(tmp_path, *[[libc([(0, 2)])]] * 3), tmp_path / "out")[KEY]
    assert (found.timeline_ns, found.waited_ns, found.cpu_ns) == (10**9, 5 * 10**8, 101 * 10**6)
    found = merged(fleet_of(tmp_path, *[[libc([(0, 2)])]] * 3, cpu_ns=None), tmp_path / "out")[KEY]
    assert (found.timeline_ns, found.cpu_ns) == (10**9, None)


def test_intersection_keeps_what_all_have_used_who_have_the_file(tmp_path):
    fleet = fleet_of(tmp_path, [libc([(0, 2), (7, 3)])], [libc([(0, 2), (7, 3)])], [libc([(0, 4)])])
    found = merged(fleet, tmp_path / "out", "--rule", "intersection")[KEY]
    assert pages(found, "/usr/lib/libc.so.6") == [(0, 2)]


def test_best_keeps_the_profile_that_has_most_in_common_with_the_others(tmp_path):
    odd, usual = libc([(30, 9)]), libc([(0, 2), (7, 3)])
    almost = libc([(0, 2), (8, 2)])
    fleet = fleet_of(tmp_path, [odd], [usual], [almost], [usual])
    found = merged(fleet, tmp_path / "out", "--rule", "best", "--k", "1")[KEY]
    assert pages(found, "/usr/lib/libc.so.6") == [(0, 2), (7, 3)]


def test_a_file_is_another_if_its_size_or_the_version_of_its_package_differs(tmp_path):
    new, old = libc([(0, 2)]), libc([(5, 2)], version="2.36-8")
    resized = libc([(9, 2)], size=51000)
    fleet = fleet_of(tmp_path, [new], [new], [new], [old], [old], [resized])
    found = merged(fleet, tmp_path / "out")[KEY]
    assert pages(found, "/usr/lib/libc.so.6") == [(0, 2)]
    (one,) = found.entries
    assert (one.package, one.size) == (("libc6", "2.36-9"), 50000)
    # Four machines have the package in this version, and one of them another file of it.
    assert one.weight == pytest.approx(3 / 4)


def test_images_have_their_own_versions_and_all_machines_vote(tmp_path):
    def machine(version, more):
        return [profile(KEY, [libc([(0, 2)], version), entry("/etc/x", 2, ranges=more)])]

    machines = {f"web/{at}": machine("1", [(0, 1)]) for at in range(3)}
    machines |= {f"desk/{at}": machine("2", [(0, 2)]) for at in range(5)}
    fleet = collected(tmp_path, machines, "--image-by-directory")
    out = tmp_path / "out"
    assert main(["merge", fleet, "-o", str(out)]) == 1, "two images are two files"
    out.mkdir()
    assert main(["merge", fleet, "-o", str(out)]) == 0
    found = {path.stem: read(path.read_bytes())[0] for path in out.iterdir()}
    assert {image: one.entries[1].package[1] for image, one in found.items()} == {"web": "1", "desk": "2"}
    # Page 1 of /etc/x is used on five of eight machines, on none of web's: it is the same file.
    for one in found.values():
        assert [(it.start, it.pages, it.weight) for it in one.entries[0].ranges] == [(0, 1, 1.0), (1, 1, 0.625)]
    assert {image: one.runs for image, one in found.items()} == {"web": 3, "desk": 5}


def test_k_keeps_only_what_so_many_machines_have_seen(tmp_path):
    def machine(at):
        return [
            libc([(0, 2), (7, 3)] if at < 3 else [(0, 2)]),
            entry(f"/opt/secret-of-{chr(97 + at)}/x"),
            *([entry("/opt/team/x")] if at < 2 else []),
        ]

    fleet = fleet_of(tmp_path, *(machine(at) for at in range(5)))
    for k, expected, ranges in (
        (1, 7, [(0, 2), (7, 3)]),
        (2, 2, [(0, 2), (7, 3)]),
        (3, 1, [(0, 2), (7, 3)]),
        (4, 1, [(0, 2)]),
    ):
        found = merged(fleet, tmp_path / "out", "--k", str(k))[KEY]
        assert len(found.entries) == expected, k
        assert pages(found, "/usr/lib/libc.so.6") == ranges
    data = (tmp_path / "out").read_bytes()
    assert b"secret" not in data
    assert main(["merge", fleet, "-o", str(tmp_path / "out"), "--k", "6"]) == 1
    assert (tmp_path / "out").read_bytes() == data, "what was there stays"


def test_a_key_of_fewer_machines_is_not_kept_and_nor_are_names_that_only_it_has(tmp_path):
    both = profile(KEY, [libc([(0, 2)])])
    machines = {"a": [both, profile("/usr/bin/rare", [libc([(0, 2)])])], "b": [both, profile("boot", [libc([(1, 2)])])]}
    found = merged(collected(tmp_path, machines), tmp_path / "out")
    assert list(found) == [KEY]


def test_a_file_that_has_another_size_everywhere_is_kept_by_its_path(tmp_path):
    cache = [entry("/etc/ld.so.cache", size=20000 + at * 16, ranges=[(0, 5)]) for at in range(4)]
    fleet = fleet_of(tmp_path, *([one, libc([(0, 2)])] for one in cache))
    found = merged(fleet, tmp_path / "out")[KEY]
    assert paths(found) == ["/etc/ld.so.cache", "/usr/lib/libc.so.6"]
    assert pages(found, "/etc/ld.so.cache") == [(0, 5)]
    assert found.entries[0].ranges[0].weight == 1.0, "certain: another size is planned, too"
    # A package's file does not vary: it is another file.
    other = tmp_path / "other"
    fleet = fleet_of(other, *([libc([(0, 2)], size=50000 + at), entry("/etc/x")] for at in range(3)))
    assert paths(merged(fleet, other / "out")[KEY]) == ["/etc/x"]


def test_paths_without_pages_are_kept_too(tmp_path):
    missing = Entry(b"/etc/ld.so.preload", None, None, MISSING, 1.0, 5)
    fleet = fleet_of(tmp_path, [missing, libc([(0, 2)])], [missing, libc([(0, 2)])])
    one = merged(fleet, tmp_path / "out")[KEY].entries[0]
    assert (one.path, one.size, one.need, one.ranges) == (b"/etc/ld.so.preload", None, MISSING, [])


def test_the_order_of_first_uses_is_the_mean_of_all(tmp_path):
    def machine(first, second):
        return [entry("/usr/lib/a", use_ms=first), entry("/usr/lib/b", use_ms=second)]

    found = merged(fleet_of(tmp_path, machine(10, 20), machine(30, 24)), tmp_path / "out")[KEY]
    assert [round(one.first_use_ns / 10**6) for one in found.entries] == [20, 22]
    # A machine that says anything moves it by its part of a start, and what is written can be read.
    odd = machine(2**63 // 10**6, 2**63 // 10**6)
    found = merged(fleet_of(tmp_path / "odd", machine(10, 20), machine(10, 20), machine(10, 20), odd), tmp_path / "out")[KEY]
    assert [round(one.first_use_ns / 10**6) for one in found.entries] == [258, 265]


def test_late_pages_of_a_file_stay_late(tmp_path):
    def machine(ms):
        one = libc([(0, 2), (7, 3)])
        one.ranges[1].first_use_ns = ms * 10**6
        return [one]

    found = merged(fleet_of(tmp_path, machine(510), machine(770)), tmp_path / "out")[KEY]
    first, second = found.entries[0].ranges
    assert first.first_use_ns == 0
    assert second.first_use_ns == pytest.approx(640 * 10**6, rel=0.1)


def test_machines_with_large_pages_vote_with_the_others(tmp_path):
    small = [profile(KEY, [libc([(0, 4)])])]
    large = [profile(KEY, [libc([(0, 2)])], page_size=16384)]
    fleet = collected(tmp_path, {"a": small, "b": large, "c": small})
    found = merged(fleet, tmp_path / "out", "--share", "1")[KEY]
    assert (found.page_size, pages(found, "/usr/lib/libc.so.6")) == (4096, [(0, 4)])


def test_what_is_written_is_what_headstart_has_read(tmp_path):
    """The test of the same file in crates/model/src/format/tests/profile_set.rs reads it in Rust."""

    def machine(at):
        early, late = libc([(0, 2)]), entry("/usr/sbin/x", package=("x", "1"))
        late.stage = 1
        boot = profile("boot", [early, late], stages=["early", "late"])
        return [profile(KEY, [libc([(0, 2), (7, 3)] if at else [(0, 2)])]), boot]

    found = merged(collected(tmp_path, {str(at): machine(at) for at in range(4)}), tmp_path / "out")
    if "HEADSTART_TESTS_WRITE" in os.environ:
        (DATA / "merged.profiles").write_bytes((tmp_path / "out").read_bytes())
    expected = {one.key: one for one in read((DATA / "merged.profiles").read_bytes())}
    assert found == expected
    assert (found["boot"].policy, found[KEY].policy) == ((BOOT,), (DECAY,))
    assert found["boot"].stages == ["early", "late"]
    assert [one.stage for one in found["boot"].entries] == [0, 1]


def test_what_has_no_room_is_left_out_the_rarest_first(tmp_path, monkeypatch, capsys):
    from headstart_fleet import limits

    everywhere = [entry(f"/usr/lib/{name}") for name in "ab"]
    some = [entry(f"/usr/lib/{name}") for name in "cd"]
    fleet = fleet_of(tmp_path, everywhere + some, everywhere + some[:1], everywhere + some[:1])
    monkeypatch.setattr(limits, "SET_ENTRIES", 3)
    found = merged(fleet, tmp_path / "out", "--k", "1", "--share", "0.1")[KEY]
    assert paths(found) == ["/usr/lib/a", "/usr/lib/b", "/usr/lib/c"]
    assert "1 files that fewer machines use are left out" in capsys.readouterr().out


def test_a_table_that_is_no_fleet_is_refused(tmp_path, capsys):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": [1]}), tmp_path / "x.parquet")
    (tmp_path / "y.parquet").write_bytes(b"PAR1 no")
    for name, why in (("x.parquet", "is no fleet"), ("y.parquet", "y.parquet"), ("none", "there is no such file")):
        assert main(["merge", str(tmp_path / name), "-o", str(tmp_path / "out")]) == 1
        assert why in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_ranges_far_apart_in_time_stay_apart(tmp_path):
    one = entry("/usr/bin/y", ranges=[(0, 2), (2, 2)])
    one.ranges[1].first_use_ns = 900 * 10**6
    assert isinstance(one.ranges[1], Range)
    found = merged(fleet_of(tmp_path, [one], [one]), tmp_path / "out", "--k", "1")[KEY]
    assert pages(found, "/usr/bin/y") == [(0, 2), (2, 2)]
