#!/usr/bin/env python3
"""Ten machines learn; what they have in common becomes the profiles that an eleventh imports. As root:

    bench/eleventh.py DIR --lab HEADSTART-LAB --headstart HEADSTART [--again]

makes DIR/votes.profiles, best.profiles and intersection.profiles, one for each rule; votes-30.profiles,
votes-90.profiles and votes-365.profiles of machines that had so many days of updates less (ages.py); and
votes-old.profiles of those of the ten that are without the updates since the release.
`lab/experiments/fleet*.toml` start the eleventh, which is the lab's images as they are, with each of them.

A machine is two roots made of the lab's recipes, because an image of the lab starts programs or boots: one has all
PROGRAMS, the other is the server. Each machine's are changed by its own apt and dpkg: other packages beside, among them
some that programs load where they are there, another language, programs that import more. Three are without the
updates since the release. Each machine starts each program twice and boots once, on a modelled cloud volume.
"""

import argparse
import csv
import json
import random
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import ages

from headstart_fleet.cli import main as fleet
from headstart_fleet.collect import read_file
from headstart_fleet.limits import FILE
from headstart_fleet.profiles import Profile, read, write_set
from headstart_fleet.queries import RULES

PROJECT = Path(__file__).resolve().parents[2]
PROGRAMS = ("python", "libreoffice", "jvm", "gpp", "r")
#: What a machine has beside what the lab's images have, each with even odds.
BESIDE_PROGRAMS = """python3-numexpr python3-bottleneck python3-lxml libopenblas0-pthread fonts-liberation
fonts-freefont-ttf fonts-noto-mono libreoffice-calc-nogui libreoffice-draw-nogui ant-optional r-cran-mass
r-cran-lattice libnss-myhostname libnss-extrausers""".split()
BESIDE_SERVER = """chrony smartmontools memcached redis-server at haveged anacron acpid ulogd2 libnss-myhostname
libnss-extrausers exim4-daemon-light xinetd rpcbind snmpd lldpd""".split()
#: What some servers do not have.
WITHOUT = ("", "", "avahi-daemon libnss-mdns", "nginx-light nginx nginx-common")
LANGUAGES = ("C.UTF-8", "C.UTF-8", "en_US.UTF-8", "de_DE.UTF-8", "fr_FR.UTF-8", "pl_PL.UTF-8")
STARTS = 2
AGES = (30, 90, 365)

#: What the machines' own programs use: the file, where the lines go (sed), and lines, each with even odds.
OWN = (
    ("/srv/figure.py", "1i", ["import sqlite3, csv", "import asyncio", "import xml.etree.ElementTree", "import decimal",
                              "import unittest, difflib", "import email.mime.text", "import http.server"]),
    ("/srv/words.cpp", "1i", ["#include <regex>", "#include <thread>", "#include <random>", "#include <fstream>"]),
    ("/srv/fit.R", "1i", ["library(parallel)", "library(stats4)", "library(splines)", "library(tools)"]),
    ("/srv/build.xml", "/<zip/i", ['<tar destfile="/tmp/ant/files.tar" basedir="/tmp/ant/files"/>', "<tstamp/>"]),
)  # fmt: skip

APT = """apt() {
    apt-get -qq -y -o APT::Sandbox::User=root -o APT::Install-Recommends=false -o Dpkg::Use-Pty=0 \\
        -o Dpkg::Options::=--force-confold -o Dpkg::Options::=--force-unsafe-io \\
        -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= "$@"
}
ls /var/lib/apt/lists/*_Packages >/dev/null 2>&1 || apt update"""

#: Makes a root another machine's. The mounts go with the process. No daemon is started meanwhile.
DIFFER = """
set -e
root=$1 apt=$2
for name in proc dev; do mount --rbind "/$name" "$root/$name"; done
mount -t tmpfs tmpfs "$root/tmp"
mkdir -p "$apt/lists/partial" "$apt/archives/partial"
mount --bind "$apt/lists" "$root/var/lib/apt/lists"
mount --bind "$apt/archives" "$root/var/cache/apt/archives"
cp "${0%/*}/commands" "$root/tmp/commands"
printf '#!/bin/sh\\nexit 101\\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
env -i PATH="$PATH" HOME=/tmp DEBIAN_FRONTEND=noninteractive chroot "$root" sh -eu /tmp/commands
rm "$root/usr/sbin/policy-rc.d"
"""

#: Programs start where the machine's root is /, as in lab/setups/imported.toml. The last exports what they taught.
LEARN = """
set -e
root=$1 state=$2 headstart=$3 what=$4
mount --rbind /sys "$root/sys"
mount --bind "${headstart%/*}" "$root/mnt"
mount --bind "$state" "$root/media"
headstart="/mnt/${headstart##*/} --state /media"
if [ "$what" = starts ]; then
    exec chroot "$root" sh /srv/starts "$headstart"
fi
exec chroot "$root" $headstart profile export --all -o /media/learned.profiles
"""

#: The same of a boot.
EXPORT = """
set -e
for name in proc sys dev; do mount --rbind "/$name" "$1/$name"; done
mount -t tmpfs tmpfs "$1/tmp"
chroot "$1" /usr/bin/headstart profile export boot -o /tmp/learned.profiles
cp "$1/tmp/learned.profiles" "$2/learned.profiles"
"""


def toml(value: object) -> str:
    """A value as TOML: strings, numbers and lists are as in JSON."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def write_toml(path: Path, table: dict) -> None:
    """Writes a table as a file."""
    path.write_text("".join(f"{key} = {toml(value)}\n" for key, value in table.items()))


def of_lab(kind: str, name: str) -> dict:
    """A recipe or a setup of the lab's."""
    return tomllib.loads((PROJECT / "lab" / kind / f"{name}.toml").read_text())


def starts(recipes: dict[str, dict]) -> str:
    """A script that starts each program once by the headstart that it is given, and looks for what each makes."""
    lines = ["set -e", "[ ! -e /etc/default/locale ] || . /etc/default/locale", "export LANG"]
    for name, recipe in recipes.items():
        start = recipe["start"]
        environment = [f"{key}={value}" for key, value in start.get("environment", {}).items()]
        environment = ["env", *environment] if environment else []
        lines.append(f"rm -rf {start['produces']}")
        lines.append(
            f"{shlex.join(environment)} $1 run --wait --control-every 0 --name {name} -- {shlex.join(start['command'])}"
        )
        lines.append(f"test -s {start['produces']}")
    return "\n".join(lines) + "\n"


def programs() -> dict:
    """A recipe of an image that has all programs."""
    recipes = {name: of_lab("images", name) for name in PROGRAMS}

    def joined(key: str) -> list:
        return [one for recipe in recipes.values() for one in recipe.get(key, [])]

    return {
        "description": "What a machine of the fleet starts",
        "packages": sorted(set(joined("packages"))),
        # Room for other versions: an image has little more than what is in it.
        "setup": [*joined("setup"), "fallocate -l 600M /srv/room"],
        "start": {"command": ["/bin/sh", "/srv/starts"]},
        "file": [*joined("file"), {"path": "/srv/starts", "content": starts(recipes)}],
        "tree": joined("tree"),
    }


def drawn(draw: random.Random, of: list[str]) -> list[str]:
    """Each of these with even odds."""
    return [one for one in of if draw.random() < 0.5]


def install(draw: random.Random, beside: list[str], old: bool) -> list[str]:
    """The commands by which a root gets other packages."""
    lines = [APT]
    if old:
        lines += [
            "sed -i '/-updates \\|-security /d' /etc/apt/sources.list",
            "printf 'Package: *\\nPin: release n=bookworm\\nPin-Priority: 1001\\n' >/etc/apt/preferences.d/old",
            "apt --allow-downgrades dist-upgrade",
        ]
    return [*lines, f"apt install {' '.join(drawn(draw, beside))}"]


def differ_programs(draw: random.Random, old: bool) -> str:
    """What makes the programs' root another machine's."""
    lines = ["rm /srv/room", *install(draw, BESIDE_PROGRAMS, old)]
    language = draw.choice(LANGUAGES)
    if language != "C.UTF-8":
        lines.append(f"apt install locales && localedef -i {language[:5]} -f UTF-8 {language}")
    lines.append(f"echo LANG={language} >/etc/default/locale")
    for file, place, own in OWN:
        lines += [f"sed -i {shlex.join([f'{place} {line}'])} {file}" for line in drawn(draw, own)]
    return "\n".join(lines) + "\n"


def differ_server(draw: random.Random, old: bool) -> str:
    """What makes the server's root another machine's."""
    lines = install(draw, BESIDE_SERVER, old)
    without = draw.choice(WITHOUT)
    return "\n".join([*lines, *([f"apt purge {without}"] if without else [])]) + "\n"


def is_old(number: int) -> bool:
    """Whether a machine is without updates: three of ten are."""
    return number % 3 == 2


def differs(apt: Path, number: int) -> list[list[str]]:
    """The commands that make a root another machine's. Of the first and of old ones it is kept how old packages are."""
    dated = [sys.executable, str(Path(ages.__file__).resolve()), "{root}", "{state}/dates.csv"]
    differ = ["unshare", "-m", "sh", "{files}/differ", "{root}", str(apt)]
    if is_old(number):
        return [differ, dated]
    return [differ] if number else [dated, differ]


def machine(number: int, seed: int, apt: Path) -> tuple[dict, dict]:
    """A machine's setups: of its programs, and of its boots."""
    draw, old = random.Random(f"{seed} {number}"), is_old(number)
    inside = ["unshare", "-m", "sh", "{files}/learn", "{root}", "{state}", "{headstart}"]
    own = {
        "name": f"m{number}",
        "install_at_once": True,
        "install": differs(apt, number),
        "record": [[*inside, "starts"]] * STARTS,
        "learn": [[*inside, "export"]],
        "start": ["true"],
        "file": {"differ": DIFFER, "commands": differ_programs(draw, old), "learn": LEARN},
    }
    boots = of_lab("setups", "boot-headstart-init") | {
        "name": f"m{number}",
        "install_at_once": True,
        "record": 1,
        "learn": [["unshare", "-m", "sh", "{files}/export", "{root}", "{state}"]],
        "file": {"differ": DIFFER, "commands": differ_server(draw, old), "export": EXPORT},
    }
    # Before headstart is there: packages are those of the image.
    boots["install"] = [*differs(apt, number), *boots["install"]]
    del boots["floor"]
    return own, boots


def learn(args: argparse.Namespace, kind: str, workload: str, setups: list[dict]) -> Path:
    """Has machines learn; returns the directory with a directory for each."""
    experiment = {
        "question": "What do the machines of a fleet have to teach?",
        "machine": kind,
        "workload": workload,
        "disk": "cloud",
        "rounds": 1,
        "limit_seconds": 600,
        "setups": setups,
    }
    file, out = args.directory / f"{kind}.toml", args.directory / kind
    write_toml(file, experiment)
    words = [args.lab, "run", file, "--out", out, "--headstart", args.headstart]
    if subprocess.run([*words, *(["--again"] if args.again else [])], check=False, cwd=PROJECT).returncode:
        sys.exit(f"the lab could not have the machines learn: {out}/output.log has their last words")
    return out / "state" / "case"


def read_dates(file: Path) -> dict[str, int]:
    """What ages.py has written."""
    with open(file, newline="") as rows:
        return {name: int(seconds) for name, seconds in csv.reader(rows)}


def merge(directory: Path, name: str, machines: list[list[Profile]], rules: tuple[str, ...]) -> None:
    """Writes the machines' profiles below a directory, collects them, and merges them by each rule."""
    place = directory / f"in{name}"
    place.mkdir(exist_ok=True)
    for number, profiles in enumerate(machines):
        (place / f"m{number}.profiles").write_bytes(write_set(profiles))
    table = str(directory / f"fleet{name}.parquet")
    commands = [["collect", str(place), "-o", table]]
    commands += [["merge", table, "-o", str(directory / f"{rule}{name}.profiles"), "--rule", rule] for rule in rules]
    for words in commands:
        if fleet(words):
            sys.exit(f"`headstart-fleet {' '.join(words)}` failed")


def tell_age(days: int, packages: set[str], known: dict[str, int], machines: list[list[Profile]]) -> None:
    """Prints how many packages and files were others so many days before."""
    files = {(entry.path, entry.package) for one in machines for profile in one for entry in profile.entries}
    others = [path for path, package in files if package and package[0] in packages]
    print(
        f"{days} days before: {len(packages)} of {len(known)} packages had another version,"
        f" and so {len(others)} of {len(files)} files of profiles"
    )


def main() -> None:
    """Makes the profiles."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=lambda text: Path(text).absolute())
    parser.add_argument("--lab", type=Path, default=PROJECT / "target/release/headstart-lab")
    headstart = {"required": True, "help": "a static one, for it runs inside"}
    parser.add_argument("--headstart", type=lambda text: Path(text).absolute(), **headstart)
    parser.add_argument("--machines", type=int, default=10)
    parser.add_argument("--seed", type=int, default=49)
    parser.add_argument("--again", action="store_true", help="have them learn anew")
    args = parser.parse_args()
    args.lab = args.lab.absolute()
    args.directory.mkdir(parents=True, exist_ok=True)
    write_toml(args.directory / "programs.toml", programs())
    setups = [machine(number, args.seed, args.directory / "apt") for number in range(args.machines)]
    roots = [
        learn(args, "chroot", "programs.toml", [own for own, _ in setups]),
        learn(args, "container", "container", [boots for _, boots in setups]),
    ]
    machines, known = [], {}
    for number in range(args.machines):
        files = [root / f"m{number}" / "learned.profiles" for root in roots]
        machines.append([one for file in files for one in read(read_file(file, FILE))])
    for root in roots:
        known |= read_dates(root / "m0" / "dates.csv")
    merge(args.directory, "", machines, RULES)
    old = list(filter(is_old, range(args.machines)))
    # Of a single one nothing is kept: --k.
    if len(old) > 1:
        theirs = {}
        for root in roots:
            theirs |= read_dates(root / f"m{old[0]}" / "dates.csv")
        days = (max(known.values()) - max(theirs.values())) / ages.DAY
        print(f"{len(old)} machines are without updates: their newest package is {days:.0f} days older")
        merge(args.directory, "-old", [machines[number] for number in old], ("votes",))
    for days in AGES:
        packages = ages.updated(known, days)
        tell_age(days, packages, known, machines)
        merge(args.directory, f"-{days}", [ages.aged(one, packages, args.seed) for one in machines], ("votes",))


if __name__ == "__main__":
    main()
