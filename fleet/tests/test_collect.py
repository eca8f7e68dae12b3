"""Files of profiles become a table; what is wrong with one is an error of its own."""

import os

import pyarrow.parquet as pq
import pytest
from support import collected, entry, profile, rows, write

from headstart_fleet import limits
from headstart_fleet.cli import main
from headstart_fleet.collect import in_processes
from headstart_fleet.profiles import Range
from headstart_fleet.tables import SCHEMA, Refused


def test_a_row_says_what_a_machine_needs_of_a_file(tmp_path):
    libc = entry("/usr/lib/libc.so.6", ranges=[(0, 2), (7, 3)], size=50000, package=("libc6", "2.36-9"), use_ms=3)
    libc.ranges[1].first_use_ns = 503 * 10**6
    libc.ranges.append(Range(20, 4, 0.2, 0))
    fleet = collected(tmp_path, {"a": [profile("/usr/bin/x", [libc])]}, "--image", "web")
    assert pq.read_schema(fleet).names == SCHEMA.names
    start, row = (dict(zip(SCHEMA.names, row)) for row in rows(fleet))
    assert (start["content"], start["path"], start["timeline_us"]) == (0, None, 10**6)
    assert (row["image"], row["path"], row["size"]) == ("web", "/usr/lib/libc.so.6", 50000)
    assert (row["package"], row["version"], row["first_use_us"]) == ("libc6", "2.36-9", 3000)
    # Half a second of one is eight parts of sixteen; what the machine would not read itself is no vote.
    assert row["ranges"] == "0+2+0,7+3+8"


def test_pages_that_no_start_touched_are_no_votes_and_pages_of_all_sizes_count_alike(tmp_path):
    one = entry("/usr/bin/x", ranges=[(0, 10)], size=10 * 16384)
    one.unused = [(2, 4), (9, 12)]
    fleet = collected(tmp_path, {"a": [profile("/usr/bin/x", [one], page_size=16384)]})
    assert rows(fleet)[1][-1] == "0+8+0,16+20+0"


def test_the_same_file_twice_is_one_machine(tmp_path):
    write(tmp_path / "in", {"a": [profile("/usr/bin/x", [entry("/usr/bin/x")])]})
    (tmp_path / "in/deep").mkdir()
    (tmp_path / "in/deep/b.profiles").write_bytes((tmp_path / "in/a.profiles").read_bytes())
    fleet = collected(tmp_path, {})
    assert len({row[0] for row in rows(fleet)}) == 1


def test_the_number_of_a_machine_is_another_in_each_collection(tmp_path):
    machines = {"a": [profile("/usr/bin/x", [entry("/usr/bin/x")])]}
    first, second = (rows(collected(tmp_path / name, machines))[0][0] for name in "ab")
    assert first != second


def test_directories_name_images(tmp_path):
    machines = {f"{image}/m": [profile("/usr/bin/x", [entry(f"/usr/bin/{image}")])] for image in ("web", "desk")}
    fleet = collected(tmp_path, machines, "--image-by-directory")
    assert {row[1] for row in rows(fleet)} == {"web", "desk"}


def test_a_wrong_file_is_told_and_the_others_go_on(tmp_path, capsys):
    write(tmp_path / "in", {"good": [profile("/usr/bin/x", [entry("/usr/bin/x")])]})
    bad = tmp_path / "in"
    (bad / "empty.profiles").write_bytes(b"")
    (bad / "other.profiles").write_bytes(b"HSPROSET" + bytes(500))
    (bad / "large.profiles").write_bytes(bytes(limits.FILE + 1))
    (bad / "link.profiles").symlink_to(bad / "good.profiles")
    os.mkfifo(bad / "pipe.profiles")
    (bad / "directory.profiles").mkdir()
    (bad / "ignored.txt").write_bytes(b"no profile")
    output = tmp_path / "fleet.parquet"
    words = ["collect", str(bad), str(tmp_path / "missing.profiles"), "-o", str(output), "--jobs", "2"]
    assert main(words) == 1
    said = capsys.readouterr()
    assert f"{output}: 1 machines, 2 rows" in said.out
    for name in ("empty", "other", "large", "link", "pipe", "directory", "missing"):
        assert f"{name}.profiles: " in said.err, name
    assert "7 files could not be read" in said.err
    assert len(rows(str(output))) == 2


def test_where_nothing_can_be_read_nothing_is_written(tmp_path, capsys):
    output = tmp_path / "fleet.parquet"
    output.write_text("as it was")
    (tmp_path / "x.profiles").write_bytes(b"HSPROSET")
    assert main(["collect", str(tmp_path), "-o", str(output)]) == 1
    assert "no file of profiles that could be read" in capsys.readouterr().err
    assert output.read_text() == "as it was"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fleet.parquet", "x.profiles"]


def test_a_name_that_cannot_be_an_image_is_refused(tmp_path, capsys):
    write(tmp_path, {"a": [profile("/usr/bin/x", [entry("/usr/bin/x")])]})
    for name in ("", "a\nb", "x" * 256):
        assert main(["collect", str(tmp_path), "-o", str(tmp_path / "f"), "--image", name or "\x1b"]) == 1
        assert "cannot be the name of an image" in capsys.readouterr().err


def test_wrong_usage_is_2(tmp_path):
    for words in ([], ["collect"], ["merge", "x"], ["merge", "x", "-o", "y", "--k", "0"], ["merge", "x", "-o", "y", "--share", "2"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
    assert main(["merge", str(tmp_path / "none"), "-o", str(tmp_path / "y")]) == 1


def test_a_process_that_is_ended_while_it_reads_is_told():
    with pytest.raises(Refused, match="fewer --jobs"):
        list(in_processes(os._exit, [9], 1))
