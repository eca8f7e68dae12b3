#!/usr/bin/env python3
"""How long merging a large fleet takes, how much memory, and what `--k` keeps.

    bench/scale.py 10000 DIR [--rules votes best]

makes a fleet of 10,000 machines (bench/generate.py) in DIR, unless it is there, and merges it with k = 1, 10, 50. Then
it reports on as many machines. Each is a process of its own, on two processors, whose peak of memory the kernel counts.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import generate
import pyarrow.parquet as pq


#: So many documents of `headstart status --json` are made, and linked under as many names as there are machines.
DOCUMENTS = 100
#: Starts that a document tells of each key.
STARTS = 20


def document(number: int) -> str:
    """What `headstart status --json` prints on a machine, as long as it is there: 1.2 KB for a start."""

    def outcome(start: int) -> dict:
        return {
            "key": "", "started_unix_ns": 1796033552079468783 + start, "mode": "control" if start % 10 == 9 else "replay",
            "elapsed_ns": 1_000_000_000 + number * start, "status": 0, "blocked_ns": 226_834_550, "resident_before": 0.01,
            "replay_ns": 700_000_000,
            "stages": [{"stage": "start", "used_pages": 8000, "late_pages": 10, "missed_pages": 7, "wasted_pages": 300}],
            "skipped": dict.fromkeys("missing changed special not_local denied over_budget stopped failed".split(), 0),
            "memory_available": 12 << 30, "memory_pressure": None, "not_learned": None, "first_request_ns": 3_000_000,
            "precision": {"needed_pages": 8000, "uncertain_pages": 40}, "pace": 1.1, "unrecorded": False,
            "used": {"pages": 8000, "unreachable_pages": 0},
            "decisions": dict.fromkeys("looks short pressed reclaimed evicted metadata_only without_room gave_way".split(), 0),
            "memory_needed": None,
        }  # fmt: skip

    def status(key: int) -> dict:
        gain = 1 + (key + number) % 9
        comparison = {
            "with": {"starts": 18, "median_ns": 100_000_000 * (10 - gain)},
            "without": {"starts": 2, "median_ns": 1_000_000_000},
            "left_out": dict.fromkeys("warm unknown declined unusual recorded before_change".split(), 0),
            "gain_ns": 100_000_000 * gain,
            "p": 0.01,
            "verdict": "faster" if gain > 1 else "no-difference",
        }
        return {"key": f"/usr/bin/program-{key}", "comparison": comparison, "bypass": None,
                "outcomes": [outcome(start) for start in range(STARTS)]}  # fmt: skip

    return json.dumps([status(key) for key in range(generate.KEYS)], indent=2)


def documents(machines: int, directory: Path) -> int:
    """Writes a document for each machine; the bytes of all."""
    total = 0
    for number in range(machines):
        path, first = directory / f"{number}.json", directory / f"{number % DOCUMENTS}.json"
        if number < DOCUMENTS:
            path.write_text(document(number))
        else:
            os.link(first, path)
        total += path.stat().st_size
    return total


def measured(words: list[str]) -> tuple[float, float, int, str]:
    """Seconds, seconds of processors, peak bytes, and what the program prints."""
    begin = time.monotonic()
    with subprocess.Popen([sys.executable, "-m", "headstart_fleet", *words], stdout=subprocess.PIPE) as process:
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    took = time.monotonic() - begin
    if process.returncode:
        sys.exit(f"`headstart-fleet {' '.join(words)}` ended with {process.returncode}")
    return took, usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10, said.decode()


def main() -> None:
    """Prints a table."""
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("machines", type=int)
    args.add_argument("directory", type=Path)
    args.add_argument("--k", type=int, nargs="+", default=[1, 10, 50])
    args.add_argument("--rules", nargs="*", default=["votes"], help="those to merge by; none: only report")
    options = args.parse_args()
    fleet = options.directory / f"fleet-{options.machines}"
    if not fleet.is_dir():
        options.directory.mkdir(parents=True, exist_ok=True)
        generate.generate(options.machines, fleet)
    rows = sum(pq.read_metadata(path).num_rows for path in fleet.iterdir())
    size = sum(path.stat().st_size for path in fleet.iterdir())
    print(f"{options.machines} machines, {generate.KEYS} keys, {rows / 1e6:.1f} million rows, {size >> 20} MiB of Parquet")
    # Frequent: files of keys that k machines or more have used. Merged: of them, those in the file of the largest image.
    print(f"{'rule':<13}{'k':>4}{'seconds':>9}{'CPU s':>8}{'peak MiB':>10}{'frequent':>10}{'merged':>8}{'without room':>14}{'MiB ahead':>11}")
    for rule in options.rules:
        for k in options.k:
            with tempfile.TemporaryDirectory(dir=options.directory) as output:
                words = ["merge", str(fleet), "-o", output, "--k", str(k), "--rule", rule, "--threads", "2", "--json"]
                took, cpu, peak, said = measured([*words, "--temp", output])
            said = json.loads(said)
            # The image of most machines.
            one = max(said["merged"], key=lambda merged: merged["machines"])
            print(
                f"{rule:<13}{k:>4}{took:>9.1f}{cpu:>8.1f}{peak >> 20:>10}{said['files_frequent']:>10}{one['files']:>8}"
                f"{one['left_out']:>14}{one['data_bytes'] >> 20:>11}",
                flush=True,
            )
    with tempfile.TemporaryDirectory(dir=options.directory) as place:
        size = documents(options.machines, Path(place))
        took, cpu, peak, _ = measured(["report", place, "-o", f"{place}/fleet.html", "--jobs", "2"])
    print(f"report on {size >> 20} MiB of documents: {took:.1f} s, {cpu:.1f} s of processors, peak {peak >> 20} MiB")


if __name__ == "__main__":
    main()
