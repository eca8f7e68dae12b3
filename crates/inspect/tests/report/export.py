"""Reads the exports in the directory that is named: export.rs says what is in them."""

import csv
import json
import os
import sys

import duckdb

os.chdir(sys.argv[1])
csv.field_size_limit(1 << 20)
paths = [
    '/usr/share/a"b,c.txt',
    "/line\nfeed\r\n/return",
    b"/invalid/\xff\xfe\x80".decode("utf-8", "replace"),
    "/<script>/\u202e\U0001f600'",
    "/long" + "x" * 4090,
]

with open("t.csv", newline="", encoding="utf-8") as file:
    rows = list(csv.reader(file))
assert len(rows) == 20006, len(rows)
assert all(len(row) == 13 for row in rows)
assert {row[5] for row in rows[1:]} == set(paths)

# What `headstart export --help` says of Parquet.
duckdb.sql("copy (from 't.csv') to 't.parquet'")
names = [row[0] for row in duckdb.sql("describe select * from 't.parquet'").fetchall()]
assert names == rows[0], names
of_each = "select path, count(*), sum(pages) from 't.parquet' where what = 'use' group by path"
summed = {path: (count, pages) for path, count, pages in duckdb.sql(of_each).fetchall()}
assert set(summed) == set(paths) and all(count == 4000 for count, _ in summed.values()), summed
assert sum(pages for _, pages in summed.values()) == sum(1 + n % 7 for n in range(20000))
absent = "select count(*) from 't.parquet' where major is null and what = 'use'"
assert duckdb.sql(absent).fetchall() == [(4000,)]

# The rules of the trace event format, by which Perfetto reads it.
with open("t.json", encoding="utf-8") as file:
    events = json.load(file)["traceEvents"]
of_phase = {}
for event in events:
    of_phase.setdefault(event["ph"], []).append(event)
assert set(of_phase) == set("MiXbeC"), set(of_phase)
assert all(isinstance(it["pid"], int) and isinstance(it["name"], str) for it in events)
assert all(it["ts"] >= 0 for it in events if it["ph"] != "M")
names = {it["pid"]: it["args"]["name"] for it in of_phase["M"]}
assert names == {7: "/bin/true", 8: "machine", 9: "block device sda"}, names
assert all(it["pid"] in names for it in events)
instants = of_phase["i"]
assert len(instants) == 20005 and {it["name"] for it in instants} == set(paths)
assert all(it["s"] == "p" and it["pid"] == it["tid"] == 7 for it in instants)
slices = [(it["name"], it["tid"], it["ts"], it["dur"]) for it in of_phase["X"]]
assert slices == [("running", 7, 1000, 2000), ("waiting for disk", 7, 3000, 5000)], slices
(begin,), (end,) = of_phase["b"], of_phase["e"]
assert [begin[key] for key in ("cat", "id", "name")] == [end[key] for key in ("cat", "id", "name")]
assert (begin["name"], begin["ts"], end["ts"]) == ("read ahead", 3000, 8000)
assert [it["args"]["value"] for it in of_phase["C"]] == [0.25, 1 << 30, 1 << 29, 4096]
print("read")
