#!/usr/bin/env python3
"""The SQL of `merge` in Spark: the same text, on a machine that Spark takes for a cluster.

    bench/spark.py FLEET --k 10 [--same]

`--same` runs DuckDB, too, and compares what both keep. It needs `pip install fleet[spark]` and Java 17.
"""

import argparse
import time
from pathlib import Path

from pyspark.sql import SparkSession

from headstart_fleet import queries, tables

#: How Spark makes a row of each element of `ranges`.
PIECES = "explode(split(ranges, ','))"
#: What more than one later query reads: Spark would compute it for each.
KEPT = {"starts", "counted", "frequent", "uses", "files", "owned", "pieces", "segments", "voted", "kept_files", "kept_ranges"}


def spark_merge(fleet: list[str], k: int, share: float, memory: str) -> tuple[set, set, dict[str, float]]:
    """What the rule `votes` keeps, and the seconds of the queries that are computed at once."""
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("headstart-fleet")
        .config("spark.driver.memory", memory)
        .config("spark.sql.shuffle.partitions", "16")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.ansi.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.read.parquet(*fleet).createOrReplaceTempView("fleet")
    times = {}
    values = {"pieces": PIECES, "k": k, "share": share}
    for name, query in [*queries.parts("votes", **values), *queries.parts("share", **values)]:
        begin = time.monotonic()
        table = spark.sql(query)
        if name in KEPT:
            table = table.persist()
            table.count()
        table.createOrReplaceTempView(name)
        times[name] = time.monotonic() - begin
    files = {tuple(row) for row in spark.sql(FILES).collect()}
    ranges = {tuple(row) for row in spark.sql(RANGES).collect()}
    spark.stop()
    return files, ranges, times


FILES = "SELECT image, key, path, size, CAST(machines AS BIGINT), CAST(of_machines AS BIGINT) FROM kept_files"
RANGES = "SELECT image, file, first, upto, CAST(round(share * 1000) AS BIGINT) FROM kept_ranges"


def duckdb_merge(fleet: list[str], k: int, share: float) -> tuple[set, set]:
    """The same by DuckDB."""
    con = tables.connect("3GB", 2)
    try:
        tables.open_fleet(con, fleet)
        queries.run(con, "votes", k=k)
        queries.keep(con, "votes", share, 64)
        return set(con.execute(FILES).fetchall()), set(con.execute(RANGES).fetchall())
    finally:
        tables.close(con)


def main() -> None:
    """Prints how long it took, and whether both keep the same."""
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("fleet", type=Path)
    args.add_argument("--k", type=int, default=10)
    args.add_argument("--share", type=float, default=0.5)
    args.add_argument("--memory", default="6g")
    args.add_argument("--same", action="store_true")
    options = args.parse_args()
    fleet = tables.files_of([str(options.fleet)])
    begin = time.monotonic()
    files, ranges, times = spark_merge(fleet, options.k, options.share, options.memory)
    print(f"Spark: {time.monotonic() - begin:.1f} s, its start included; {len(files)} files, {len(ranges)} ranges")
    for name, seconds in sorted(times.items(), key=lambda one: -one[1])[:6]:
        print(f"  {name:<12} {seconds:6.1f} s")
    if options.same:
        begin = time.monotonic()
        other_files, other_ranges = duckdb_merge(fleet, options.k, options.share)
        print(f"DuckDB: {time.monotonic() - begin:.1f} s")
        differ = len(files ^ other_files), len(ranges ^ other_ranges)
        print("both keep the same" if differ == (0, 0) else f"they differ: {differ[0]} files, {differ[1]} ranges")


if __name__ == "__main__":
    main()
