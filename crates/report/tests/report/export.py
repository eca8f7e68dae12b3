"""Reads the exports in the directory that is named: export.rs says what is in them."""

import csv
import os
import sys

import duckdb
from perfetto.protos.perfetto.trace import perfetto_trace_pb2

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

trace = perfetto_trace_pb2.Trace()
with open("t.perfetto", "rb") as file:
    trace.ParseFromString(file.read())


def unknown(message):
    """Fields that the schema does not have."""
    from google.protobuf import unknown_fields

    found = len(unknown_fields.UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            repeated = hasattr(value, "__len__")
            found += sum(unknown(one) for one in (value if repeated else [value]))
    return found


assert unknown(trace) == 0
packets = trace.packet
assert packets[0].sequence_flags == 1 and all(it.trusted_packet_sequence_id == 1 for it in packets)
tracks = {it.track_descriptor.uuid: it.track_descriptor for it in packets if it.HasField("track_descriptor")}
events = [it for it in packets if it.HasField("track_event")]
assert all(it.track_event.track_uuid in tracks for it in events)
assert all(it.parent_uuid in tracks for it in tracks.values() if it.HasField("parent_uuid"))
(process,) = [it.process for it in tracks.values() if it.HasField("process")]
(thread,) = [it.thread for it in tracks.values() if it.HasField("thread")]
assert (process.pid, process.process_name, thread.tid) == (7, "true", 7)
instants = [it for it in events if it.track_event.type == 3]
assert len(instants) == 20005 and {it.track_event.name for it in instants} == set(paths)
begins = [(it.track_event.name, it.timestamp) for it in events if it.track_event.type == 1]
assert begins == [("running", 1000000), ("waiting for disk", 3000000), ("read ahead", 3000000)], begins
ends = [it.timestamp for it in events if it.track_event.type == 2]
assert ends == [3000000, 8000000, 8000000], ends
values = [it.track_event for it in events if it.track_event.type == 4]
assert [it.double_counter_value for it in values[:1]] == [0.25]
assert [it.counter_value for it in values[1:]] == [1 << 30, 1 << 29, 4096]
print("read")
