#!/usr/bin/env python3
"""How long merging a large fleet takes, how much memory, and what `--k` keeps.

    bench/scale.py 10000 DIR [--rules votes best]

makes a fleet of 10,000 machines (bench/generate.py) in DIR, unless it is there, and merges it with k = 1, 10, 50. Each
merge is a process of its own, on two processors, whose peak of memory the kernel counts.
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


def measured(words: list[str]) -> tuple[float, float, int, dict]:
    """Seconds, seconds of processors, peak bytes, and what a merge prints."""
    begin = time.monotonic()
    with subprocess.Popen([sys.executable, "-m", "headstart_fleet", *words], stdout=subprocess.PIPE) as process:
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    took = time.monotonic() - begin
    if process.returncode:
        sys.exit(f"`headstart-fleet {' '.join(words)}` ended with {process.returncode}")
    return took, usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10, json.loads(said)


def main() -> None:
    """Prints a table."""
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("machines", type=int)
    args.add_argument("directory", type=Path)
    args.add_argument("--k", type=int, nargs="+", default=[1, 10, 50])
    args.add_argument("--rules", nargs="+", default=["votes"])
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
            # The image of most machines.
            one = max(said["merged"], key=lambda merged: merged["machines"])
            print(
                f"{rule:<13}{k:>4}{took:>9.1f}{cpu:>8.1f}{peak >> 20:>10}{said['files_frequent']:>10}{one['files']:>8}"
                f"{one['left_out']:>14}{one['data_bytes'] >> 20:>11}",
                flush=True,
            )


if __name__ == "__main__":
    main()
