"""The page of `fleet report`."""

import json

import pytest

from headstart_fleet import limits, report
from headstart_fleet.cli import main


def outcome(mode="replay", needed=1000, wasted=50):
    precision = {"needed_pages": needed, "uncertain_pages": 0} if mode == "replay" else None
    return {"mode": mode, "precision": precision, "not_learned": None, "stages": [{"stage": "start", "wasted_pages": wasted}]}


def status(key, verdict="faster", with_ms=500, without_ms=1000, **more):
    group = lambda ms: {"starts": 5, "median_ns": None if ms is None else ms * 10**6}  # noqa: E731
    comparison = {"with": group(with_ms), "without": group(without_ms), "verdict": verdict}
    return {"key": key, "comparison": comparison, "bypass": None, "outcomes": [outcome()] * 4 + [outcome("control")], **more}


def page(directory, documents, *options):
    for name, document in documents.items():
        text = document if isinstance(document, str) else json.dumps(document)
        (directory / f"{name}.json").write_text(text)
    output = directory / "out.html"
    return main(["report", str(directory), "-o", str(output), *options]), output.read_text() if output.exists() else ""


def test_gains_verdicts_and_over_read_are_added_up(tmp_path):
    documents = {
        "a": [status("/usr/bin/x"), status("boot", "too-few", None, None)],
        "b": [status("/usr/bin/x", with_ms=700), status("/usr/bin/y", "slower", 1300, outcomes=[outcome(wasted=400)])],
    }
    ended, text = page(tmp_path, documents)
    assert ended == 0
    fleet = report.Fleet({name: [report.of_key(one) for one in keys] for name, keys in documents.items()})
    x, boot, y = report.rows(fleet)
    assert (x.key, x.machines, x.gain, x.over_read) == ("/usr/bin/x", 2, pytest.approx(0.4), 0.05)
    assert x.saved_s == pytest.approx(4 * 0.5 + 4 * 0.3)
    assert (boot.gain, boot.verdicts["too-few"]) == (None, 1)
    assert (y.gain, y.over_read) == (pytest.approx(-0.3), 0.4)
    assert [(name, one.key) for name, one in report.slower(fleet)] == [("b", "/usr/bin/y")]
    assert "<b>2</b>machines" in text and "-30%" in text and "<b>1</b>machines with a slower key" in text


def test_machines_are_numbers_unless_their_names_are_wanted(tmp_path):
    slow = {"anna-laptop": [status("/usr/bin/y", "slower", 1300)]}
    assert "anna-laptop" not in page(tmp_path, slow)[1]
    assert "anna-laptop" in page(tmp_path, slow, "--names")[1]


def test_all_that_is_shown_is_escaped_and_nothing_comes_from_elsewhere(tmp_path):
    evil = "</td><script>alert('x')</script><img src=https://example.org/x onerror=a()>\"'&"
    documents = {"<b>m&": [status(evil, "slower", 1300)], "bad<i>": "{"}
    ended, text = page(tmp_path, documents, "--names")
    assert ended == 1
    assert "<script" not in text and "<img" not in text and "<b>m&" not in text and "bad<i>" not in text
    assert "&lt;script&gt;" in text and "bad&lt;i&gt;" in text
    assert " src=" not in text.replace("&lt;img src=", "") and "@import" not in text and "url(" not in text
    assert "default-src 'none'" in text


@pytest.mark.parametrize(
    "document",
    [
        "",
        "[" * 100_000,
        "{}",
        '"text"',
        "[1]",
        "[{}]",
        [status("")],
        [status("x" * 5000)],
        [status("x", "best")],
        [status("x", with_ms=-1)],
        [status("x", outcomes=7)],
        [status("x", outcomes=[outcome(needed=10**30)])],
        [status("x", outcomes=[outcome(needed=True)])],
        [status("x", outcomes=[outcome(wasted="1")])],
        [status("x", bypass=None) | {"comparison": None}],
        '[{"key": "x", "comparison": NaN}]',
    ],
)
def test_a_document_that_is_wrong_is_told_and_the_others_are_shown(tmp_path, document, capsys):
    ended, text = page(tmp_path, {"bad": document, "good": [status("/usr/bin/x")]})
    assert ended == 1 and "<b>1</b>machines" in text
    said = capsys.readouterr().err
    assert "bad.json: " in said and "1 files could not be read" in said
    assert "Traceback" not in said


def test_without_any_document_nothing_is_written(tmp_path, capsys):
    (tmp_path / "large.json").write_bytes(b" " * (limits.STATUS + 1))
    ended, text = page(tmp_path, {})
    assert (ended, text) == (1, "")
    assert "no document that could be read" in capsys.readouterr().err
