"""The table of a fleet, and DuckDB as it is used here.

A fleet is one Parquet file, or several. Each row says what one machine's starts of one key need of one file. One more
row for each machine and key stands for its starts as a whole: it has `content` 0 and no path.
"""

import os
import tempfile
from pathlib import Path

import duckdb
import pyarrow as pa

#: The unit of ranges, bytes. Machines with larger pages count in it, too.
BLOCK = 4096
#: Parts into which the time of a start is divided where a range says how long after its file's first use it is used.
PARTS = 16

#: Shapes and units of the columns.
SCHEMA = pa.schema(
    [
        # A random number for each file of profiles; no name of a machine.
        ("machine", pa.int64()),
        # What its owner calls machines of this kind; "default" where nothing was said.
        ("image", pa.string()),
        ("key", pa.string()),
        # Of the profile, the same in all rows of a machine and key: bytes, runs, microseconds.
        ("page_size", pa.int32()),
        ("runs", pa.int32()),
        ("timeline_us", pa.int64()),
        ("waited_us", pa.int64()),
        # Null where no run told.
        ("cpu_us", pa.int64()),
        # Hashes, by which rows are joined; the same in all collections. What a file is: path, size, package, version.
        ("content", pa.int64()),
        # A key's file: key and content. A key's path: key and path.
        ("file", pa.int64()),
        ("name", pa.int64()),
        # What a file comes and goes with: package and version, or itself if it has none.
        ("unit", pa.int64()),
        # How a key uses a file: key, content, need, stage and ranges. Of starts: the key.
        ("use", pa.int64()),
        ("path", pa.string()),
        # Bytes; null where only the path is needed.
        ("size", pa.int64()),
        ("package", pa.string()),
        ("version", pa.string()),
        # As the format counts it: 0 missing, 1 stat, 2 list, 3 open.
        ("need", pa.int8()),
        ("stage", pa.string()),
        # The machine's own votes: the share of its starts, 0 to 1.
        ("weight", pa.float32()),
        # Since the start's first use.
        ("first_use_us", pa.int64()),
        # "START+BLOCKS+PART,…": blocks of 4096 bytes, ascending and disjoint, and in which part of 16 of the start's
        # time, counted from the file's first use, they are used first. Empty where there are none.
        ("ranges", pa.string()),
    ],
    metadata={"headstart.fleet": "1"},
)


class Refused(Exception):
    """What was asked for cannot be done; the text says why, and the way out."""


def connect(memory: str, threads: int, directory: Path | None = None) -> duckdb.DuckDBPyConnection:
    """A database in memory that takes at most `memory` (as "3GB") and then writes to a temporary directory."""
    place = tempfile.mkdtemp(prefix="headstart-fleet-", dir=directory)
    config = {
        "memory_limit": memory,
        "threads": threads,
        "temp_directory": place,
        "preserve_insertion_order": False,
        # Files come from others: nothing is fetched or loaded on their account.
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    try:
        con = duckdb.connect(config=config)
    except duckdb.Error:
        os.rmdir(place)
        raise
    con.execute("SET enable_progress_bar = false")
    return con


def close(con: duckdb.DuckDBPyConnection) -> None:
    """Closes a database and removes its temporary directory."""
    (place,) = con.execute("SELECT current_setting('temp_directory')").fetchone()
    con.close()
    for path in Path(place).glob("*"):
        path.unlink(missing_ok=True)
    os.rmdir(place)


def files_of(fleet: list[str]) -> list[str]:
    """The Parquet files that arguments name: files, and directories of files."""
    files = []
    for name in fleet:
        path = Path(name)
        found = sorted(map(str, path.glob("*.parquet"))) if path.is_dir() else [name] * path.is_file()
        if not found:
            raise Refused(f"{name}: there is no such file, nor a directory with .parquet files: `collect` makes one")
        files += found
    return files


def open_fleet(con: duckdb.DuckDBPyConnection, fleet: list[str]) -> None:
    """Makes the view `fleet`."""
    files = files_of(fleet)
    relation = con.read_parquet(files)
    lacking = [name for name in SCHEMA.names if name not in relation.columns]
    if lacking:
        raise Refused(f"{files[0]} is no fleet, it lacks the column {lacking[0]}: `collect` makes one")
    relation.create_view("fleet")
