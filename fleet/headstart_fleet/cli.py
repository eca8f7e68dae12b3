"""The command line. Exit status: 0 done, 1 could not (or not all), 2 wrong usage."""

import argparse
import json
import os
import sys
from pathlib import Path

import duckdb

from headstart_fleet import collect as collecting
from headstart_fleet import compare as comparing
from headstart_fleet import merge as merging
from headstart_fleet import page, queries, report, tables

#: The rule that was best on machines it had not seen: README.md has the figures, and the commands that print them.
DEFAULT_RULE = "votes"
DEFAULT_SHARE = 0.5
DEFAULT_K = 2
#: Machines whose profiles the rule `best` compares for each image and key.
CANDIDATES = 64


def share(text: str) -> float:
    """A share: more than 0, 1 at most."""
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is no share: say one above 0, and 1 at most, such as 0.5")
    return value


def at_least(least: int):
    """A whole number of at least `least`."""

    def number(text: str) -> int:
        value = int(text)
        if not least <= value <= 10**9:
            raise argparse.ArgumentTypeError(f"{text} is too small or too large: say a number from {least} on")
        return value

    number.__name__ = "number"
    return number


def parser() -> argparse.ArgumentParser:
    """All of the command line."""
    top = argparse.ArgumentParser(
        prog="headstart-fleet",
        description="Profiles of many machines become one. Nothing is sent anywhere: the fleet's owner collects the"
        " files that `headstart profile export` has written.",
    )
    machine = argparse.ArgumentParser(add_help=False)
    machine.add_argument("--memory", default="3GB", help="memory for DuckDB, more goes to a temporary directory [3GB]")
    machine.add_argument("--threads", type=at_least(1), default=os.cpu_count() or 1, help="processors to use [all]")
    machine.add_argument("--temp", type=Path, metavar="DIR", help="where temporary files go [$TMPDIR]")
    rules = argparse.ArgumentParser(add_help=False)
    rules.add_argument("fleet", nargs="+", metavar="FLEET", help="what `collect` wrote: files, or directories of them")
    rules.add_argument("--share", type=share, default=DEFAULT_SHARE, help="share of the machines for votes [0.5]")
    rules.add_argument(
        "--k", type=at_least(1), default=DEFAULT_K, help="keep only what so many machines have seen [2]"
    )
    rules.add_argument("--json", action="store_true", help="print one JSON document")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="COMMAND")

    reads = argparse.ArgumentParser(add_help=False)
    reads.add_argument("--jobs", type=at_least(1), default=os.cpu_count() or 1, help="processes that read files [all]")

    one = verbs.add_parser("collect", parents=[reads], help="exported profiles become a fleet, a Parquet file")
    one.add_argument("places", nargs="+", metavar="DIR|FILE", help="files of profiles, or directories of *.profiles")
    one.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="the Parquet file to write")
    kind = one.add_mutually_exclusive_group()
    kind.add_argument("--image", help="what these machines are called together [default]")
    kind.add_argument("--image-by-directory", action="store_true", help="the name of each file's directory is its image")
    one.add_argument("--json", action="store_true", help="print one JSON document")

    one = verbs.add_parser("merge", parents=[rules, machine], help="a fleet becomes a file of profiles for each image")
    one.add_argument("-o", "--output", type=Path, required=True, help="the file; a directory for several images")
    one.add_argument("--rule", choices=queries.RULES, default=DEFAULT_RULE, help=f"how to merge [{DEFAULT_RULE}]")

    one = verbs.add_parser("compare", parents=[rules, machine], help="hold the rules against machines that are left out")
    one.add_argument("--folds", type=at_least(2), help="leave out so many parts in turn [each machine alone]")
    one.add_argument("--keys", action="store_true", help="print each key, too")

    one = verbs.add_parser("report", parents=[reads], help="what headstart brought, as an HTML page")
    one.add_argument("places", nargs="+", metavar="DIR|FILE", help="what `headstart status --json` printed, *.json")
    one.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="the HTML file to write")
    one.add_argument("--names", action="store_true", help="name machines as their files are named, not by numbers")
    return top


def main(arguments: list[str] | None = None) -> int:
    """Runs the program; returns its exit status."""
    args = parser().parse_args(arguments)
    try:
        return {"collect": collect, "merge": merge, "compare": compare, "report": write_report}[args.verb](args)
    except (tables.Refused, ValueError) as error:
        print(f"headstart-fleet: {error}", file=sys.stderr)
    except OSError as error:
        print(f"headstart-fleet: {error.filename or ''}: {error.strerror or error}", file=sys.stderr)
    except duckdb.OutOfMemoryException:
        print("headstart-fleet: DuckDB needs more memory: say --memory, or a --temp with more room", file=sys.stderr)
    except duckdb.Error as error:
        print(f"headstart-fleet: {str(error).splitlines()[0]}", file=sys.stderr)
    return 1


def complain(errors: list[str]) -> int:
    """The exit status where some files could not be read."""
    if errors:
        print(f"headstart-fleet: {len(errors)} files could not be read, the others are done", file=sys.stderr)
    return 1 if errors else 0


def collect(args: argparse.Namespace) -> int:
    """`headstart-fleet collect`."""
    done = collecting.collect(
        args.places, args.output, image=args.image, by_directory=args.image_by_directory, jobs=args.jobs
    )
    if args.json:
        print(json.dumps(vars(done)))
    else:
        print(f"{args.output}: {done.machines} machines, {done.rows} rows")
        if done.keys_left_out or done.paths_left_out:
            print(f"left out: {done.keys_left_out} keys, {done.paths_left_out} paths with names of people or by chance")
    return complain(done.errors)


def merge(args: argparse.Namespace) -> int:
    """`headstart-fleet merge`."""
    con = tables.connect(args.memory, args.threads, args.temp)
    times: dict[str, float] = {}
    try:
        tables.open_fleet(con, args.fleet)
        done = merging.merge(
            con, args.output, rule=args.rule, share=args.share, k=args.k, candidates=CANDIDATES, times=times
        )
        seen = merging.seen(con)
    finally:
        tables.close(con)
    for one in done:
        if args.json:
            continue
        print(
            f"{one.file}: image {one.image}, {one.machines} machines, {one.keys} keys, {one.files} files,"
            f" {one.data_bytes >> 20} MiB to read ahead, {one.bytes >> 10} KiB"
        )
        if one.left_out:
            print(f"{one.left_out} files that fewer machines use are left out: the file has no room for them")
    if args.json:
        shown = [{**vars(one), "file": str(one.file)} for one in done]
        for one in shown:
            del one["profiles"]
        print(json.dumps({"merged": shown, **seen, "seconds": times}))
    return 0


def compare(args: argparse.Namespace) -> int:
    """`headstart-fleet compare`."""
    con = tables.connect(args.memory, args.threads, args.temp)
    try:
        tables.open_fleet(con, args.fleet)
        scores = comparing.compare(con, folds=args.folds, share=args.share, k=args.k, candidates=CANDIDATES)
    finally:
        tables.close(con)
    best = comparing.best_of(scores)
    if args.json:
        shown = {
            rule: {key or "all": {"recall": one.recall, "over_read": one.over_read, "f1": one.f1} for key, one in by_key.items()}
            for rule, by_key in scores.items()
        }
        print(json.dumps({"rules": shown, "best": best}))
        return 0
    print(f"{'rule':<13} {'recall':>7} {'over-read':>10} {'F1':>6}   by bytes, on machines left out")
    for rule, by_key in scores.items():
        for key in sorted(by_key) if args.keys else [""]:
            one = by_key[key]
            name = key if key else rule
            print(f"{name:<13} {one.recall:>7.1%} {one.over_read:>10.1%} {one.f1:>6.3f}")
    print(f"best: {best}")
    return 0


def write_report(args: argparse.Namespace) -> int:
    """`headstart-fleet report`."""
    fleet = report.read(args.places, args.names, args.jobs)
    merging.write_whole(args.output, page.page(fleet).encode())
    print(f"{args.output}: {len(fleet.machines)} machines")
    for error in fleet.errors:
        print(f"headstart-fleet: {error}", file=sys.stderr)
    return complain(fleet.errors)
