"""Processes that a step starts, and what came of them."""

import mmap
import os
import select
import signal
import time

import linux

# No test judges by the clock: whoever takes longer hangs.
HANGS_AFTER = 150
# Those of which no status was taken yet, by number.
living = {}
# Called when a start takes too long: they let go what not even SIGKILL ends, as a request that a FUSE server has taken.
when_late = []


class Start:
    """One start: `words` executed under `conditions`, its output collected."""

    def __init__(self, words, conditions=(), environment=None, directory=None, stdin=b"", argv0=None, group=False):
        self.words = [os.fsencode(word) for word in words]
        self.raw, self.stopped, self.late = None, False, False
        # Memory of both processes: the new one's standard error may be closed.
        self._has_failed = mmap.mmap(-1, 1)
        self.begun = time.monotonic()
        self.ends = {}
        out, err, feed = os.pipe(), os.pipe(), os.pipe()
        # What is fed fits in a pipe: nobody waits for it to be taken.
        os.set_blocking(feed[1], False)
        os.write(feed[1], stdin[:60000])
        # A signal that comes amid the fork is the new process's, and not for Python's handlers.
        handled = (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, handled)
        self.pid = os.fork()
        if self.pid == 0:
            code = 99
            try:
                if group:
                    os.setpgid(0, 0)
                for number in handled:
                    signal.signal(number, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                for number, end in enumerate((feed[0], out[1], err[1])):
                    os.dup2(end, number)
                if directory is not None:
                    os.chdir(directory)
                for condition in sorted(conditions, key=lambda one: one.rank):
                    condition.apply()
                code = execute(self.words, environment, argv0)
            except BaseException:
                self._has_failed[0] = 1
            finally:
                os._exit(code)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        living[self.pid] = self
        for end in (feed[0], feed[1], out[1], err[1]):
            os.close(end)
        self.ends = {out[0]: bytearray(), err[0]: bytearray()}
        self._out, self._err = out[0], err[0]
        self._kept = dict(self.ends)

    @property
    def out(self):
        return bytes(self._kept[self._out])

    @property
    def err(self):
        return bytes(self._kept[self._err])

    @property
    def has_begun(self):
        """Whether the new process could try to execute the words: under a low limit Python has no room for them."""
        return self._has_failed[0] == 0

    @property
    def done(self):
        return self.raw is not None and not self.ends

    def drop(self):
        for end in self.ends:
            os.close(end)
        self.ends = {}

    def kill(self):
        if self.raw is None:
            send(self.pid, signal.SIGKILL)
            send(self.pid, signal.SIGCONT)


def execute(words, environment, argv0):
    """As a shell does: 127 for what is not found, 126 for what cannot be executed."""
    environment = os.environb if environment is None else environment
    name = words[0]
    if b"/" in name:
        paths = [name]
    else:
        paths = [b"/".join((directory, name)) for directory in (b"/usr/bin", b"/bin", b"/usr/sbin", b"/sbin")]
    argv = list(words) if argv0 is None else [argv0] + words[1:]
    error = 127
    for path in paths:
        try:
            if argv[0]:
                os.execve(path, argv, environment)
            else:
                linux.execute(path, argv, environment)
        except FileNotFoundError:
            pass
        except OSError:
            error = 126
    return error


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def reap():
    """Takes the status of all that has ended: of starts, and of what lost its parent."""
    while True:
        try:
            pid, raw = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid in living:
            living.pop(pid).raw = raw


def end_helper(pid):
    """Ends a process of the storm's own."""
    send(pid, signal.SIGKILL)
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        pass


def drive(starts, each=lambda: None, watch=None, deadline=HANGS_AFTER):
    """Until all have ended and nobody holds their output any more; `each` is called now and then. Who takes too long is killed."""
    until = time.monotonic() + deadline
    while not all(start.done for start in starts):
        ends = {end: start for start in starts for end in start.ends}
        ready, _, _ = select.select(list(ends), [], [], 0.01)
        for end in ready:
            some = os.read(end, 65536)
            if some:
                ends[end]._kept[end].extend(some[: 1 << 22])
            else:
                del ends[end].ends[end]
                os.close(end)
        reap()
        each()
        if watch is not None:
            watch.look()
        if time.monotonic() > until:
            for start in starts:
                if not start.done:
                    start.late = True
                    start.kill()
                    start.drop()
            for let_go in when_late:
                let_go()
            until += 10


class Watch:
    """The memory of headstart's own processes, and whether one of them is there."""

    def __init__(self, program):
        self.program = os.path.realpath(program)
        self.peak, self.whose, self._next = 0, "", 0.0
        self.maps = 0

    def look(self):
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + 0.05
        for pid in linux.descendants():
            if linux.executable(pid) == self.program:
                peak = int(linux.status(pid).get("VmHWM", "0 kB").split()[0])
                if peak > self.peak:
                    self.peak, self.whose = peak, linux.words(pid)
                self.maps = max(self.maps, sum(linux.map_sizes(pid).values()) >> 10)

    def processes(self, apart=()):
        return [pid for pid in linux.descendants() if pid not in apart and linux.executable(pid) == self.program]
