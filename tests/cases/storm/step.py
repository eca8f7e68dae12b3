"""One step: a command, what is around it and what happens beside it; started without headstart and with it, and compared."""

import os
import shutil
import time

import commands
import conditions
import events
import linux
import signals
from random import Random
from starts import Start, drive, reap, send

ENVIRONMENT = {b"PATH": b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", b"HOME": b"/nonexistent", b"LANG": b"C"}
# Longer than any start is recorded and finished for.
LEFT_AFTER = 150


def place_below(top, name):
    path = os.path.join(top, name)
    os.makedirs(path, exist_ok=True)
    return path


class Step:
    def __init__(self, storm, number):
        self.storm, self.number, self.watch = storm, number, storm.watch
        self.random = Random(f"{storm.seed}/{number}")
        # Whether the command leaves a core also without headstart: then who becomes it may be killed for the same, and leave it.
        self.core_without = False
        self.is_served, self.is_skipped = False, False
        self.told, self.mounted, self.groups, self.running, self.tools = [], [], [], [], []
        name = b"step-%d" % number
        self.place = place_below(storm.disk, name)
        self.base = place_below(storm.memory, name)
        self.beside = place_below(self.place, b"b")
        self.state = os.path.join(self.random.choice([self.base, self.place]), b"state")
        for path in (self.place, self.base, self.beside):
            os.chmod(path, 0o777 if self.random.random() < 0.5 else 0o755)
        for index in range(self.random.choice([0, 3, 30])):
            with open(os.path.join(self.beside, b"%d" % index), "wb") as file:
                file.write(self.random.randbytes(self.random.choice([10, 5000, 300000])))

    # ---- what conditions and events use ----

    def skip(self):
        """From now on the command leaves out what may never answer."""
        self.is_skipped = True
        with open(os.path.join(self.place, b"skip"), "wb"):
            pass

    def mount(self, source, target, kind, flags=0, options=None):
        os.makedirs(target, exist_ok=True)
        linux.mount(source, target, kind, flags, options)
        self.mounted.append(target)

    def unmount(self, target):
        """Nobody may use it any more, at the latest when all that was started has ended."""
        self.mounted.append(target)

    def group(self, controller, first, second):
        """A control group with these limits, in the version that the machine has."""
        place, files = f"/sys/fs/cgroup/{controller}", first
        if not os.path.isdir(place):
            place, files = "/sys/fs/cgroup", second
            try:
                with open(f"{place}/cgroup.subtree_control", "w") as file:
                    file.write(f"+{controller}")
            except OSError:
                pass
        path = f"{place}/storm-{os.getpid()}-{self.number}-{controller}"
        os.mkdir(path)
        self.groups.append(path)
        for name, value in files.items():
            try:
                with open(os.path.join(path, name), "w") as file:
                    file.write(str(value))
            except OSError:
                # Swap may not be counted here.
                if "sw" not in name:
                    raise
        return path

    def apart(self):
        """Processes that are not the step's: the daemon's."""
        daemon = self.storm.daemon.pid
        return {daemon, *linux.descendants(daemon)} if daemon else set()

    def tool(self, random):
        """Begins another command of headstart's."""
        key, target = os.fsencode(self.key), os.path.join(self.base, b"out-%d" % random.randrange(1000))
        words = random.choice([
            [b"status"], [b"status", b"--json"], [b"status", key], [b"explain", b"--name", key, b"/bin/cat"], [b"explain", self.place], [b"floor", key],
            [b"chart", b"-o", target + b".html", key], [b"chart", b"--no-floor", b"-o", target + b".svg", key], [b"layout", b"show", key], [b"layout", b"plan", key],
            [b"layout", b"apply", b"--force", key], [b"layout", b"apply", key], [b"layout", b"status"], [b"forget", key], [b"apps", b"list"], [b"apps", b"disable", key],
            [b"apps", b"enable", key], [b"apps", b"show", key], [b"doctor"], [b"report-bug", b"-o", target], [b"record", b"-o", target, b"--", b"true"],
            [b"run", b"--name", key, b"--", b"true"],
        ])
        # What of the machine's own root would be moved stays: it is read-only for this one. No service is begun for it either.
        around = []
        if b"apply" in words:
            def keep():
                linux.unshare(linux.NEWNS)
                linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
                linux.mount("/", "/", None, linux.MS_BIND)
                linux.mount(None, "/", None, linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY)
                linux.mount("t", "/run", "tmpfs")
            around = [conditions.Condition(1, "", keep)]
        start = Start([self.storm.program, *words, b"--state", self.state] if b"--" not in words else [self.storm.program, b"--state", self.state, *words],
                      around, ENVIRONMENT, self.base)
        self.tools.append(start)

    # ---- the step itself ----

    def run(self):
        try:
            kind = self.random.choices([self.compared, self.many, lambda: signals.signalled(self)], [70, 14, 16])[0]
            kind()
        finally:
            self.clean()

    def tell(self, text):
        self.told.append(text)

    def failed(self, text):
        self.storm.failed(text)

    def draw_start(self):
        """How headstart is called."""
        random = self.random
        self.key = random.choice(["k", "k", "k", "a b " + "x" * 100, "boot2", "/bin/cat", "%s"])
        self.options = ["--state", self.state]
        if random.random() < 0.7:
            self.options += ["--name", self.key]
        if random.random() < 0.4:
            self.options += ["--wait"]
        if random.random() < 0.6:
            self.options += ["--control-every", random.choice(["0", "0", "1", "2"])]
        if random.random() < 0.1:
            self.options += ["--chart"]
        self.environment = dict(ENVIRONMENT)
        if random.random() < 0.6:
            self.environment[b"HEADSTART_EVEN_WARM"] = b"1"
        if random.random() < 0.1:
            self.environment = {}
            self.tell("empty environment")
        self.tell("called with " + " ".join(map(repr, self.options[2:])))

    def begin(self, with_headstart, command, around):
        words = [self.storm.program, "run", *self.options, "--", *command.words] if with_headstart else command.words
        start = Start(words, around, self.environment, self.place, command.stdin, b"" if with_headstart and self.no_name else None)
        self.running.append(start)
        return start

    def one(self, with_headstart, command, around, during=lambda: None):
        start = self.begin(with_headstart, command, around)
        drive([start], during, self.watch)
        self.running.remove(start)
        return start

    def compared(self):
        random = self.random
        self.draw_start()
        self.no_name = random.random() < 0.05
        self.command = command = commands.draw(random, self)
        self.tell(command.name)
        around = conditions.draw(random, self)
        happening = events.draw(random, self)
        if any(condition.text.startswith("user") for condition in around) and random.random() < 0.7:
            for path in (self.place, self.base):
                os.chown(path, int([condition.text for condition in around if condition.text.startswith("user")][0].split()[1]), 0)
        self.tell("; ".join(condition.text for condition in around) or "no condition")
        self.tell("; ".join(event.text for event in happening) or "nothing beside")
        self.begun = []
        try:
            for event in happening:
                self.begun.append(event)
                event.begin()
            plain = [self.one(False, command, around) for _ in range(3 if any(one.makes_unsteady for one in around) else 2)]
            self.core_without = any((start.raw or 0) & 0x80 for start in plain)
            is_steady = len({(start.raw, self.said(start.out, command), self.said(start.err, command)) for start in plain}) == 1
            self.storm.count("steady" if is_steady else "unsteady")
            rounds = random.choice([1, 2, 3, 4])
            for turn in range(rounds):
                is_last = turn == rounds - 1
                if turn or is_last:
                    for event in happening:
                        event.between(is_last)
                def during():
                    for event in happening:
                        event.during()
                start = self.one(True, command, around, during if is_last else lambda: None)
                self.compare(turn, plain[0], start, command, is_steady)
            drive(self.tools)
        finally:
            for event in reversed(self.begun):
                event.end()

    def said(self, text, command):
        # How often bash tries once more depends on when what it has begun ends.
        lines = [line for line in text.split(b"\n") if b"bash: fork: retry: " not in line]
        return b"\n".join(sorted(lines) if command.unordered else lines)

    def compare(self, turn, plain, start, command, is_steady):
        # That a command cannot be run a shell would say, too.
        own = [line for line in start.err.splitlines(True) if line.startswith(b"headstart: ") and b"headstart: cannot run" not in line]
        rest = b"".join(line for line in start.err.splitlines(True) if not line.startswith(b"headstart: "))
        where = turn if isinstance(turn, str) else f"start {turn + 1}"
        if not (start.has_begun and plain.has_begun):
            return self.storm.count("not begun")
        if self.is_skipped and plain.err:
            # What it leaves out it had complained of.
            return self.storm.count("not comparable")
        if start.late and not plain.late:
            self.failed(f"{where} hangs: {start.err[-500:]!r}")
        if len(own) > 1:
            self.failed(f"{where}: {len(own)} lines: {own!r}")
        if b"panicked" in start.err:
            self.failed(f"{where}: {start.err!r}")
        if not is_steady or start.late:
            return
        if b"bash: fork: retry: " in plain.err:
            # It waits for a task, and gives up if a process ends meanwhile (sleep(3) is interrupted): by chance.
            return self.storm.count("not comparable")
        # There is one core, the command's: who passes its signal on makes no other.
        if start.raw & ~0x80 != plain.raw & ~0x80:
            self.failed(f"{where}: status {start.raw:#06x}, not {plain.raw:#06x}: {start.err[-500:]!r}; without: {plain.err[-500:]!r}")
        elif self.said(start.out, command) != self.said(plain.out, command):
            self.failed(f"{where}: says {start.out[-700:]!r}, not {plain.out[-700:]!r}")
        elif sorted(rest.split()) != sorted(plain.err.split()) and self.said(rest, command) != self.said(plain.err, command):
            # By words: a command and its wrapper write there at once, and in pieces.
            self.failed(f"{where}: standard error {rest[-700:]!r}, not {plain.err[-700:]!r}")

    def many(self):
        """Many programs at once, of many users, under one key or several."""
        random = self.random
        self.draw_start()
        self.no_name = False
        drawn = [commands.draw(random, self) for _ in range(random.choice([4, 8, 20]))]
        drawn = [command for command in drawn if not command.unordered and b"mv" not in os.fsencode(command.words[-1])]
        around = [[conditions.user(random, self)] if random.random() < 0.5 else [] for _ in drawn]
        happening = [kind(random, self) for kind in random.sample([events.Tools, events.Killed, events.Damaged, events.Daemon], random.choice([0, 1, 2]))]
        self.tell(f"{len(drawn)} at once: " + ", ".join(sorted(command.name for command in drawn)))
        self.tell("; ".join(event.text for event in happening) or "nothing beside")
        plain = [self.one(False, *both) for both in zip(drawn, around)]
        again = [self.one(False, *both) for both in zip(drawn, around)]
        for _ in range(random.choice([1, 2])):
            starts = []
            for event in happening:
                event.between(True)
            for command, condition in zip(drawn, around):
                options = self.options
                if random.random() < 0.5:
                    self.options = options + ["--control-every", "0"] if "--control-every" not in options else options
                starts.append(self.begin(True, command, condition))
                self.options = options
            drive(starts + self.tools, lambda: [event.during() for event in happening], self.watch)
            drive(starts + self.tools)
            self.running = []
            for command, first, second, start in zip(drawn, plain, again, starts):
                steady = (first.raw, first.out) == (second.raw, second.out)
                shared = any(word in command.name for word in ("amid", "deep", "links", "removed", "overlay", "mounts", "script", "odd name"))
                self.compare(command.name, first, start, command, steady and not shared)

    # ---- behind it ----

    def check_tools(self):
        for start in self.tools:
            what = start.words[1:4]
            if start.late:
                self.failed(f"{what} hangs: {start.err[-500:]!r}")
            elif start.raw is None:
                start.kill()
            elif start.raw not in (0, 1 << 8) or b"panicked" in start.err:
                self.failed(f"{what} ended with {start.raw:#x}: {start.err[-700:]!r}")

    def clean(self):
        self.check_tools()
        for start in self.running:
            start.kill()
        self.wait_for_all()
        for target in dict.fromkeys(reversed(self.mounted)):
            try:
                self.unmount_now(target)
            except OSError as error:
                self.failed(f"{error}")
                linux.libc.umount2(target, 2)
        for group in self.groups:
            self.remove_group(group)
        for top in (self.place, self.base):
            self.look_for_cores(top)
            shutil.rmtree(top, ignore_errors=True)
            if os.path.exists(top):
                # Deeper than a path can be.
                drive([Start(["rm", "-rf", top])])
        self.storm.check()

    def unmount_now(self, target):
        until = time.monotonic() + 20
        while True:
            try:
                return linux.umount(target)
            except OSError as error:
                if error.errno != 16 or time.monotonic() > until:
                    raise
            time.sleep(0.05)

    def wait_for_all(self):
        """No process is left: what we began is ours even if its parent has ended."""
        until = time.monotonic() + LEFT_AFTER
        told_at = time.monotonic() + 15 if os.environ.get("STORM_VERBOSE") else until + 100
        while True:
            reap()
            self.storm.daemon.look()
            self.watch.look()
            left = {pid: state for pid, state in linux.descendants().items() if pid not in self.apart()}
            if not left:
                return
            if time.monotonic() > told_at:
                told_at = until + 100
                print(" | ".join(self.told) + " waits for " + "; ".join(f"{pid} {state} {linux.words(pid)}" for pid, state in left.items()), flush=True)
            if time.monotonic() > until:
                self.failed("left: " + "; ".join(f"{pid} {state} {linux.words(pid)}" for pid, state in left.items()))
                for pid in left:
                    send(pid, 9)
                until += 10
            time.sleep(0.02)

    def remove_group(self, group):
        until = time.monotonic() + 20
        while True:
            try:
                return os.rmdir(group)
            except OSError as error:
                if time.monotonic() > until:
                    return self.failed(f"control group {group}: {error}")
            time.sleep(0.05)

    def look_for_cores(self, top):
        for path in events.walk(top):
            if os.path.basename(path).startswith(b"core") and os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as file:
                    if b"headstart\0" in file.read(16384) and not self.core_without:
                        self.failed(f"a core of headstart's: {path!r}")
