"""Signals to a start: what the command gets of them, and how headstart ends, follow from what was sent."""

import os
import signal
import time

import linux
from starts import Start, drive, reap, send

TERM, HUP, KILL, STOP, CONT, INT = signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT, signal.SIGINT
SCRIPT = "trap 'echo TERM; exit 5' TERM; trap 'echo HUP; exit 6' HUP; echo ready; cat b/* >/dev/null 2>&1; while :; do sleep 0.02; done"
COMMAND = ["sh", "-c", SCRIPT]
STATUS = {TERM: 5 << 8, HUP: 6 << 8, KILL: 9}


def signalled(step):
    random = step.random
    step.draw_start()
    step.options = [option for option in step.options if option != "--wait"]
    how = random.choice(["at once", "when ready", "stopped", "group", "helpers first", "storm"])
    number = random.choice([TERM, HUP, KILL])
    if how in ("stopped", "helpers first", "storm"):
        number = random.choice([TERM, HUP])
    step.tell(f"signal {int(number)}, {how}")
    for turn in range(random.choice([1, 2, 3])):
        start = Start([step.storm.program, "run", *step.options, "--", *COMMAND], (), step.environment, step.place, group=True)
        step.running.append(start)
        if how == "at once":
            time.sleep(random.random() * 0.08)
        else:
            until = time.monotonic() + 60
            drive_until(start, step, lambda: b"ready" in start.out or time.monotonic() > until)
            if b"ready" not in start.out:
                step.failed(f"start {turn + 1}: not ready after a minute: {start.err!r}")
        send_so(step, start, how, number)
        took = end(step, start)
        judge(step, turn, start, how, number, took)
        step.running.remove(start)


def send_so(step, start, how, number):
    if how == "stopped":
        for _ in range(step.random.choice([1, 5])):
            send(start.pid, STOP)
            time.sleep(step.random.random() * 0.1)
            send(start.pid, CONT)
    elif how == "helpers first":
        for pid in step.watch.processes(step.apart()):
            if pid != start.pid and linux.session(pid) == pid:
                send(pid, step.random.choice([KILL, TERM, STOP, CONT]))
                if step.random.random() < 0.5:
                    time.sleep(0.02)
                send(pid, CONT)
    elif how == "storm":
        for _ in range(50):
            send(start.pid, step.random.choice([CONT, STOP, CONT, signal.SIGWINCH, signal.SIGCHLD, signal.SIGURG]))
        send(start.pid, CONT)
    if how == "group":
        # headstart passes on what the command has, too: it may come twice.
        os.killpg(start.pid, number)
    else:
        send(start.pid, number)


def drive_until(start, step, condition):
    """Until something has come about, or the start has ended."""
    class Enough(Exception):
        pass

    def look():
        if condition():
            raise Enough

    try:
        drive([start], look, step.watch)
    except Enough:
        pass


def end(step, start):
    """headstart ends; if it was killed the command goes on, and is ended here."""
    until = time.monotonic() + 60
    drive_until(start, step, lambda: start.raw is not None or time.monotonic() > until)
    ended_by_itself = start.raw is not None
    if not ended_by_itself:
        step.failed(f"still there a minute after its signal: {start.out!r} {start.err!r}; {linux.status(start.pid).get('State')}")
    step.watch.look()
    # Whatever is left of the command, but for headstart's own, which must end by itself.
    for _ in range(200):
        others = [pid for pid in linux.descendants() if pid not in step.apart() and linux.executable(pid) != step.watch.program]
        alive = [pid for pid in others if linux.status(pid).get("State", " Z").split()[0] != "Z"]
        if not alive:
            break
        for pid in alive:
            send(pid, KILL)
        reap()
        time.sleep(0.01)
    drive([start], lambda: None, step.watch)
    return ended_by_itself


def judge(step, turn, start, how, number, ended_by_itself):
    if not ended_by_itself:
        return
    statuses = {STATUS[number]}
    if how == "at once" and number in (TERM, HUP):
        # Before the trap is set it ends as any process.
        statuses.add(int(number))
    if start.raw not in statuses:
        step.failed(f"start {turn + 1}: status {start.raw:#x}, not {statuses}: {start.out!r} {start.err[-500:]!r}")
    if b"panicked" in start.err:
        step.failed(f"start {turn + 1}: {start.err!r}")
    lines = [line for line in start.out.split(b"\n") if line]
    word = {TERM: b"TERM", HUP: b"HUP", KILL: None}[number]
    if set(lines) - {b"ready", word} or lines.count(b"ready") > 1 or (how != "group" and lines.count(word) > 1):
        step.failed(f"start {turn + 1}: says {start.out!r}")
    if start.raw > 255 and word not in lines:
        step.failed(f"start {turn + 1}: the command did not get it: {start.out!r}")
