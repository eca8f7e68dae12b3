"""The queries of `sql/`, run one after the other."""

import re
import time
from importlib import resources

import duckdb

#: How DuckDB makes a row of each element of `ranges`.
PIECES = "unnest(string_split(ranges, ','))"
RULES = ("votes", "best", "intersection")


def parts(name: str, **values: object) -> list[tuple[str, str]]:
    """The queries of a file, by name, with values in place of `{names}`."""
    text = resources.files("headstart_fleet").joinpath("sql", f"{name}.sql").read_text()
    found = re.split(r"^-- name: (\w+)\n", text, flags=re.M)[1:]
    queries = zip(found[::2], found[1::2])
    return [(part, query.strip().rstrip(";").format(**values)) for part, query in queries]


def run(con: duckdb.DuckDBPyConnection, name: str, times: dict[str, float] | None = None, **values: object) -> None:
    """Makes a table of each query of a file. `times` is given the seconds that each took."""
    for part, query in parts(name, pieces=PIECES, **values):
        begin = time.monotonic()
        con.execute(f"CREATE OR REPLACE TEMP TABLE {part} AS {query}")
        if times is not None:
            times[part] = time.monotonic() - begin


def keep(
    con: duckdb.DuckDBPyConnection, rule: str, share: float, candidates: int, times: dict[str, float] | None = None
) -> None:
    """Makes `kept_files` and `kept_ranges` by a rule, of what `votes.sql` has counted."""
    if rule == "best":
        run(con, "best", times, candidates=candidates)
    else:
        # 1.0 by itself would be less than the votes of a machine in a fleet of 2^53.
        run(con, "share", times, share=1.0 if rule == "intersection" else share)
