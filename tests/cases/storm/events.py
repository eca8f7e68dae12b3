"""What happens while, before and between starts: to the files that are read ahead, to the state, to headstart's processes. None of it concerns what the
command says: the files of `b` are read, and what is in them is told by nobody; where `skip` is there they are left alone."""

import fcntl
import os
import shutil
import signal

import fuse
import linux
from starts import end_helper, send, when_late


class Event:
    """`text` tells what it is. `begin` is called before the first start, `between` before each other one, `during` again and again while the last
    goes on, `end` behind all."""

    text = ""

    def __init__(self, random, step):
        self.random, self.step = random, step
        self.draw()

    def draw(self):
        pass

    def begin(self):
        pass

    def between(self, is_last):
        pass

    def during(self):
        pass

    def end(self):
        pass


def walk(top):
    for where, names, files in os.walk(top):
        for name in names + files:
            yield os.path.join(where, name)


class Mutated(Event):
    """Files are deleted, rewritten, truncated, renamed, or become something else while a start reads them ahead."""

    text = "files change amid"

    def during(self):
        names = os.listdir(self.step.beside)
        if not names or self.random.random() < 0.3:
            return
        path = os.path.join(self.step.beside, self.random.choice(names))
        # What a link leads to is not the storm's.
        kind = self.random.choice([0, 3, 4]) if os.path.islink(path) else self.random.randrange(8)
        try:
            if kind == 0:
                os.unlink(path)
            elif kind == 1:
                with open(path, "wb") as file:
                    file.write(self.random.randbytes(self.random.choice([0, 10, 100000])))
            elif kind == 2:
                os.truncate(path, self.random.choice([0, 1, 4097, 1 << 30]))
            elif kind == 3:
                os.rename(path, os.path.join(self.step.beside, b"n%d" % self.random.randrange(100)))
            elif kind == 4:
                os.unlink(path)
                self.random.choice([os.mkdir, lambda at: os.symlink(b"/proc/self/mem", at), lambda at: os.symlink(at, at)])(path)
            elif kind == 5:
                os.link(path, os.path.join(self.step.beside, b"l%d" % self.random.randrange(100)))
            elif kind == 6:
                os.chmod(path, self.random.choice([0, 0o644, 0o4755]))
            else:
                os.utime(path, ns=(0, self.random.randrange(1 << 60)))
        except OSError:
            pass


class Leased(Event):
    """Somebody has leased the files, and gives none back in time."""

    text = "files are leased"
    pid = 0

    def between(self, is_last):
        if not is_last or self.pid:
            return
        self.step.skip()
        ready = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                signal.signal(signal.SIGIO, signal.SIG_IGN)
                held = []
                for name in os.listdir(self.step.beside)[:500]:
                    held.append(os.open(os.path.join(self.step.beside, name), os.O_RDWR))
                    try:
                        fcntl.fcntl(held[-1], fcntl.F_SETLEASE, fcntl.F_WRLCK)
                    except OSError:
                        pass
                os.write(ready[1], b"x")
                signal.pause()
            finally:
                os._exit(0)
        os.close(ready[1])
        os.read(ready[0], 1)
        os.close(ready[0])

    def end(self):
        if self.pid:
            end_helper(self.pid)


class Served(Event):
    """The files lie on a FUSE file system, which becomes slow, hangs, or ends."""

    served = None

    def draw(self):
        self.becomes = self.random.choice(["slow", "hanging", "gone"])
        self.text = f"a FUSE file system that is {self.becomes}"

    def begin(self):
        self.files = {b"%d" % number: self.random.randbytes(30000) for number in range(30)}
        self.served = fuse.Fuse(self.step.beside, self.files)
        when_late.append(self.served.end)
        self.step.is_served = True

    def between(self, is_last):
        if is_last:
            self.step.skip()
            if self.becomes == "gone":
                self.served.end()
            else:
                self.served.become(fuse.SLOW if self.becomes == "slow" else fuse.HANGING)

    def end(self):
        if self.served:
            when_late.remove(self.served.end)
            self.served.end()
            self.step.unmount(self.step.beside)
            self.step.is_served = False


class StateMount(Event):
    """The state lies on a file system that is full, or read-only, now or from the last start on."""

    def draw(self):
        self.how = self.random.choice(["full", "nearly full", "read-only", "without inodes"])
        self.late = self.random.random() < 0.5
        self.text = f"state {self.how}" + (" at last" if self.late else "")

    def begin(self):
        options = "mode=755,size=2M" + (",nr_inodes=9" if self.how == "without inodes" else "")
        self.step.mount("t", self.step.state, "tmpfs", 0, options)
        if not self.late:
            self.make()

    def make(self):
        if self.how == "read-only":
            try:
                linux.mount(None, self.step.state, None, linux.MS_REMOUNT | linux.MS_RDONLY)
            except OSError:
                pass  # Somebody writes.
        elif self.how != "without inodes":
            space = os.statvfs(self.step.state)
            room = space.f_bavail * space.f_bsize - (self.random.choice([4096, 20000]) if self.how == "nearly full" else 0)
            try:
                with open(os.path.join(self.step.state, b"ballast"), "wb") as file:
                    file.write(bytes(max(room, 0)))
            except OSError:
                pass

    def between(self, is_last):
        if is_last and self.late and os.path.ismount(self.step.state):
            self.late = False
            self.make()


class Damaged(Event):
    """The state is damaged before each further start, or while one reads it."""

    def draw(self):
        self.amid = self.random.random() < 0.3
        self.text = "state damaged" + (" amid" if self.amid else "")

    def between(self, is_last):
        for _ in range(self.random.choice([1, 1, 5, 50])):
            self.damage()

    def during(self):
        if self.amid:
            self.damage()

    def damage(self):
        paths = sorted(walk(self.step.state))
        if not paths:
            return
        path = self.random.choice(paths)
        # What a link leads to is not the storm's.
        kind = self.random.randrange(3) if os.path.islink(path) else self.random.randrange(12)
        try:
            if os.path.isdir(path) and kind > 4:
                return
            if kind == 0:
                self.clear(path)
                os.mkfifo(path)
            elif kind == 1:
                self.clear(path)
                os.symlink(self.random.choice([b"/dev/zero", b"/proc/kmsg", path, b"/etc/passwd", b"/nonexistent"]), path)
            elif kind == 2:
                self.clear(path)
                if not os.path.exists(path):
                    os.mkdir(path)
            elif kind == 3:
                os.chmod(path, self.random.choice([0, 0o777, 0o644]))
            elif kind == 4:
                os.chown(path, 10001, 10001)
            else:
                self.bytes(path, kind)
        except OSError:
            pass

    def clear(self, path):
        shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)

    def bytes(self, path, kind):
        if not os.path.isfile(path):
            return
        size = os.path.getsize(path)
        with open(path, "r+b") as file:
            if kind in (5, 6):
                os.truncate(path, self.random.randrange(size + 1))
            elif kind == 7:
                file.seek(0, 2)
                file.write(self.random.randbytes(5000))
            elif kind == 8 and size > 12:
                # A newer version, as far as one can guess where a format tells it.
                file.seek(self.random.randrange(4, 12))
                file.write(bytes([self.random.choice([2, 9, 200, 255])]))
            elif kind == 9:
                os.truncate(path, 3 << 30)
            elif size:
                for _ in range(self.random.choice([1, 1, 8, 200])):
                    file.seek(self.random.randrange(size))
                    file.write(self.random.randbytes(1))


class Killed(Event):
    """headstart's processes, but not the one that is or becomes the command, get a signal each."""

    def draw(self):
        self.number = self.random.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGSEGV, signal.SIGUSR1])
        self.after = self.random.randrange(40)
        self.text = f"signal {int(self.number)} to headstart's helpers"

    def during(self):
        self.after -= 1
        if self.after > 0:
            return
        supervisors = {start.pid for start in self.step.running}
        for pid in self.step.watch.processes(self.step.apart()):
            # What waits to become the command is headstart, too, but has not a session of its own.
            if pid not in supervisors and linux.session(pid) == pid:
                send(pid, self.number)


class Tools(Event):
    """Other commands of headstart's on the same state and key, at the same time."""

    text = "other commands beside"

    def draw(self):
        self.left = self.random.choice([1, 3, 10])

    def during(self):
        if self.left and self.random.random() < 0.2:
            self.left -= 1
            self.step.tool(self.random)


class Evicted(Event):
    """What is read is put out of memory before each start."""

    text = "cold"

    def between(self, is_last):
        self.evict()

    def begin(self):
        self.evict()

    def evict(self):
        # Who serves them may never answer.
        if self.step.is_served:
            return
        for path in walk(self.step.place):
            if os.path.isfile(path):
                try:
                    # One that somebody has leased is not waited for.
                    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
                except OSError:
                    continue
                try:
                    os.fsync(file)
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                except OSError:
                    pass
                finally:
                    os.close(file)


class Daemon(Event):
    """The daemon is killed and begun anew, or ended, or spoken to by whoever has no manners."""

    def draw(self):
        self.how = self.random.choice(["killed", "ended", "spoken to", "spoken to"])
        self.text = f"the daemon is {self.how}"

    def begin(self):
        if self.how == "killed":
            self.step.storm.daemon.kill()
        elif self.how == "ended":
            self.step.storm.daemon.stop()
        self.step.storm.daemon.begin()

    def during(self):
        if self.how == "spoken to":
            self.step.storm.daemon.babble(self.random)
        elif self.how == "killed" and self.random.random() < 0.01:
            self.step.storm.daemon.kill()
            self.step.storm.daemon.begin()


ALL = [Mutated, Mutated, Leased, Served, Served, StateMount, StateMount, Damaged, Damaged, Damaged, Killed, Killed, Tools, Tools, Evicted, Evicted, Evicted, Daemon]


def draw(random, step):
    chosen = []
    for kind in random.sample(ALL, random.choice([0, 1, 1, 2, 3])):
        if kind not in chosen and not {Leased, Mutated, Served} & {kind} & set(chosen):
            chosen.append(kind)
    if Served in chosen:
        chosen = [kind for kind in chosen if kind not in (Leased, Mutated)]
    return [kind(random, step) for kind in chosen]
