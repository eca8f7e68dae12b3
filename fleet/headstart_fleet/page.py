"""The HTML page of `fleet report`: one file, without scripts, fonts or pictures from elsewhere."""

from html import escape

from headstart_fleet.report import Fleet, OfKey, Row, rows, slower

#: Rows of each table: what nobody reads need not be sent.
MOST_ROWS = 500

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #1b1f24; }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
table { border-collapse: collapse; width: 100% } th, td { padding: .3rem .6rem; text-align: right; vertical-align: top }
th { border-bottom: 2px solid #57606a; font-weight: 600 } td { border-bottom: 1px solid #d8dee4 }
th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere }
.cards { display: flex; flex-wrap: wrap; gap: 1rem } .card { border: 1px solid #d8dee4; border-radius: 6px; padding: .6rem 1rem }
.card b { display: block; font-size: 1.4rem } .bar { display: inline-block; height: .7rem; vertical-align: middle }
.faster { background: #2da44e } .slower { background: #cf222e } .no-difference { background: #8c959f }
.too-few { background: #d8dee4 } .bad { color: #cf222e } p.note { color: #57606a }
"""


def percent(value: float | None, is_bad: bool = False) -> str:
    """A share for people."""
    if value is None:
        return "–"
    text = f"{value:.0%}"
    return f'<span class="bad">{text}</span>' if is_bad else text


def seconds(value: float | None) -> str:
    """A time for people."""
    if value is None:
        return "–"
    for unit, size in (("h", 3600), ("min", 60)):
        if abs(value) >= 2 * size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.2f} s"


def bar(verdicts: dict[str, int]) -> str:
    """The verdicts of a key's machines, as parts of a bar."""
    total = sum(verdicts.values()) or 1
    return "".join(
        f'<span class="bar {name}" style="width:{8 * count / total:.2f}rem" title="{name}: {count}"></span>'
        for name, count in verdicts.items()
        if count
    )


def _table(head: list[str], body: list[list[str]], more: int) -> str:
    cells = "".join(f"<th>{name}</th>" for name in head)
    lines = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in line) + "</tr>\n" for line in body)
    note = f'<p class="note">{more} more are not shown.</p>' if more > 0 else ""
    return f"<table><thead><tr>{cells}</tr></thead><tbody>\n{lines}</tbody></table>{note}"


def _of_key(row: Row) -> list[str]:
    gain, over = row.gain, row.over_read
    return [
        escape(row.key),
        str(row.machines),
        bar(row.verdicts),
        percent(gain, gain is not None and gain < -0.02),
        seconds(row.saved_s),
        percent(over, over is not None and over > 0.1),
        str(row.replays),
        str(row.bypassed),
    ]


def _of_slower(name: str, one: OfKey) -> list[str]:
    words = [escape(name), escape(one.key), escape(one.verdict), percent(one.gain, True)]
    return words + [seconds(one.with_s), seconds(one.without_s), "yes" if one.bypassed else "no"]


def page(fleet: Fleet) -> str:
    """The whole page."""
    keys, worst = rows(fleet), slower(fleet)
    gains = sum(row.saved_s for row in keys)
    needed, wasted = sum(row.needed for row in keys), sum(row.wasted for row in keys)
    cards = [
        ("machines", str(len(fleet.machines))),
        ("keys", str(len(keys))),
        ("read-ahead starts", str(sum(row.replays for row in keys))),
        ("time saved in them", seconds(gains)),
        ("read in vain, of what starts needed", percent(wasted / needed if needed else None)),
        ("machines with a slower key", str(len({name for name, one in worst if one.verdict == "slower"}))),
    ]
    shown = "".join(f'<div class="card"><b>{value}</b>{name}</div>' for name, value in cards)
    head = ["key", "machines", "verdicts", "gain", "saved", "read in vain", "starts", "bypassed"]
    by_key = _table(head, [_of_key(row) for row in keys[:MOST_ROWS]], len(keys) - MOST_ROWS)
    head = ["machine", "key", "verdict", "gain", "with", "without", "bypassed"]
    by_machine = _table(head, [_of_slower(*pair) for pair in worst[:MOST_ROWS]], len(worst) - MOST_ROWS)
    errors = "".join(f"<li>{escape(error)}</li>" for error in fleet.errors[:MOST_ROWS])
    unread = f"<h2>Documents that could not be read</h2><ul>{errors}</ul>" if errors else ""
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>headstart: the fleet</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>{STYLE}</style></head><body>
<h1>headstart: the fleet</h1>
<div class="cards">{shown}</div>
<h2>By key</h2>
<p class="note">Gain: the median machine's share of a cold start's time that is saved, by medians of starts with and
without reading ahead. Saved: that difference times the read-ahead starts whose outcomes are kept. Read in vain: pages
that were read ahead and not used, of the pages that starts needed. Verdicts: green faster, red slower, grey no
difference, light too few starts.</p>
{by_key}
<h2>Who is slower</h2>
<p class="note">Keys with the verdict “slower”, and keys that are 2&nbsp;% slower or more without enough starts for a
verdict. headstart bypasses a key whose verdict is “slower” by itself.</p>
{by_machine if worst else "<p>Nobody.</p>"}
{unread}
</body></html>
"""
