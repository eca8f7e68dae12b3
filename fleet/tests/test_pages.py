"""What the pages show of this program's command line exists."""

import re
import shlex
from pathlib import Path

import pytest

from headstart_fleet.cli import parser

ROOT = Path(__file__).parents[2]
PAGES = ["fleet/README.md", "fleet/SCALE.md", "docs/guide/servers.md", "docs/guide/README.md", "docs/decisions/0047-fleets.md"]


def lines():
    """The command lines of the pages, without remarks; as much of a sentence's as it shows."""
    for page in PAGES:
        text = (ROOT / page).read_text()
        found = re.findall(r"^(?:    |# )?headstart fleet (.+)$", text, re.M) + re.findall(r"`headstart fleet ([^`]+)`", text)
        yield from (line.split("  #")[0].split(" #")[0] for line in found)


def test_every_command_line_of_the_pages_is_one():
    shown = [shlex.split(line) for line in lines()]
    assert len(shown) >= 10
    for words in shown:
        # Of a command in a sentence the files may be left out.
        if len(words) == 1:
            words += ["x"]
        if words[0] in ("collect", "merge", "report") and "-o" not in words:
            words += ["-o", "x"]
        try:
            parser().parse_args(words)
        except SystemExit:
            pytest.fail(" ".join(words))
