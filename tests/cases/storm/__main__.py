#!/usr/bin/env python3
"""Hostile and odd starts for SECONDS, drawn at random, and what must hold behind each: the command's output, status and signal are as without headstart;
one line of headstart's at most; no process, mount, loop device, control group, trace instance or BPF program is left; memory below its bound; the daemon
alive; no core and no complaint of the kernel's. As root:

    python3 tests/cases/storm [--seconds 3600] [--seed S] [--step N] [--program target/debug/headstart]

Seed and step of what fails are printed: --seed S --step N does that step again. Exit status: 0 nothing failed, 1 something did, 2 it cannot be tried here.
"""

import argparse
import glob
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import linux  # noqa: E402
from daemon import Daemon  # noqa: E402
from starts import Watch, reap, send  # noqa: E402
from step import Step  # noqa: E402

# What headstart leaves a command alone for if less is free (docs/decisions/0021-nothing-at-risk.md): so much it may take, KiB.
MOST_MEMORY = 256 << 10
# What the kernel may keep for a recording (limits::KERNEL_MEMORY), KiB.
MOST_MAPS = 64 << 10
# What is left of a step, with the daemon's and the storm's own, bytes.
MOST_LEFT = 512 << 20
COMPLAINT = re.compile(r"WARNING:|BUG:|Oops|^general protection|blocked for more than|soft lockup|rcu.*stall|(traps: |^)storm-headstart\[\d+\].*(segfault|trap |general protection)|Aborting journal")


class Storm:
    def __init__(self, seed):
        self.seed, self.failures, self.counts, self.current = seed, 0, Counter(), None
        self.work = os.fsencode(tempfile.mkdtemp(prefix="storm-", dir="/var/tmp"))
        self.work_text = os.fsdecode(self.work)
        os.chmod(self.work, 0o755)
        self.is_gone, self.daemon = False, None

    def prepare(self, program):
        linux.unshare(linux.NEWNS)
        linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
        linux.be_subreaper()
        self.group = linux.memory_group(f"storm-{os.getpid()}-all")
        self.kernel = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(self.kernel, 0, os.SEEK_END)
        self.memory = self.directory(b"memory")
        linux.mount("storm", self.memory, "tmpfs", 0, "mode=755,size=1G")
        # By another name than that of others' tests: the kernel tells names.
        self.program = os.path.join(self.work, b"storm-headstart")
        shutil.copy(program, self.program)
        os.chmod(self.program, 0o755)
        # What it executes for other subcommands, which it looks for beside itself.
        for part in (b"headstart-inspect", b"headstart-layout"):
            shutil.copy(os.path.join(os.path.dirname(os.fsencode(program)), part), self.work)
        self.watch = Watch(os.fsdecode(self.program))
        self.make_disk()
        self.make_images()
        self.calls = self.compiled()
        self.mounts, self.bpf = linux.mounts(), {kind: linux.bpf_ids(kind) for kind in (linux.PROGRAMS, linux.MAPS)}
        self.instances = os.path.join(linux.tracing(), "instances")
        self.loops = set(linux.loop_devices(self.work_text))
        self.daemon = Daemon(self)
        self.daemon.begin()

    def directory(self, name):
        path = os.path.join(self.work, name)
        os.makedirs(path, exist_ok=True)
        return path

    def make_disk(self):
        image = os.path.join(self.work, b"disk.image")
        with open(image, "wb") as file:
            file.truncate(2 << 30)
        subprocess.run(["mkfs.ext4", "-qF", image], check=True)
        self.disk = self.directory(b"disk")
        subprocess.run(["mount", "-o", "loop", image, self.disk], check=True)
        os.chmod(self.disk, 0o755)

    def make_images(self):
        """The same files as images of several kinds."""
        source = self.directory(b"memory/source/data")
        for number in range(40):
            with open(os.path.join(source, b"%d" % number), "wb") as file:
                file.write(random.Random(number).randbytes(random.Random(number).choice([10, 5000, 200000])))
        source = os.path.dirname(source)
        shutil.copy(b"/bin/cat", source)
        self.images = []
        for kind, words in (("squashfs", ["mksquashfs", source, None, "-noappend", "-quiet", "-no-progress"]), ("erofs", ["mkfs.erofs", None, source]),
                            ("ext4", ["mkfs.ext4", "-qF", "-d", source, None, "40M"])):
            image = os.path.join(self.disk, b"image." + kind.encode())
            if shutil.which(words[0]) and kind in open("/proc/filesystems").read():
                subprocess.run([image if word is None else word for word in words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                self.images.append(image)
        shutil.rmtree(source)

    def compiled(self):
        """A program of 32-bit calls."""
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../crates/headstart/tests/cases/calls.c")
        target = os.path.join(self.work, b"calls")
        if shutil.which("gcc") and os.uname().machine == "x86_64" and os.path.exists(source):
            if subprocess.run(["gcc", "-w", "-o", target, source]).returncode == 0:
                return target
        return None

    def count(self, what):
        self.counts[what] += 1

    def failed(self, text):
        self.failures += 1
        step = self.current
        where = f"--seed {self.seed} --step {step.number}" if step else f"--seed {self.seed}"
        print(f"FAILED {where}: {text}", flush=True)
        for told in step.told if step else []:
            print(f"    {told}", flush=True)

    def check(self):
        """What must hold behind each step, when all that it began has ended."""
        self.daemon.check()
        self.watch.look()
        if self.watch.peak > MOST_MEMORY:
            self.failed(f"{self.watch.peak} KiB of memory: {self.watch.whose}")
        self.counts["peak, KiB"] = max(self.counts["peak, KiB"], self.watch.peak)
        self.watch.peak = 0
        if self.watch.maps > MOST_MAPS:
            self.failed(f"{self.watch.maps} KiB of BPF maps in a process")
        self.counts["maps, KiB"] = max(self.counts["maps, KiB"], self.watch.maps)
        self.watch.maps = 0
        left = linux.group_memory(self.group) if self.group else 0
        if left > MOST_LEFT:
            self.failed(f"{left} bytes of memory are left in {self.group}")
        self.counts["left in the group, KiB"] = max(self.counts["left in the group, KiB"], left >> 10)
        mounts = linux.mounts()
        # Others' go when their directories are removed, in every namespace.
        changed = [one for one in set(mounts) ^ set(self.mounts) if one in mounts or self.work in one]
        if changed:
            self.failed(f"mounts: {sorted(changed)}")
        self.mounts = mounts
        self.eventually("loop devices", lambda: set(linux.loop_devices(self.work_text)) - self.loops)
        self.eventually("BPF programs", lambda: self.lost(linux.PROGRAMS, "prog_id"))
        self.eventually("BPF maps", lambda: self.lost(linux.MAPS, "map_id"))
        self.eventually("trace instances", self.trace_instances)
        # Under a filter or a low limit a scout goes first, and may die of it (docs/decisions/0021-nothing-at-risk.md).
        may_die = any("filter: " in told or "limits: " in told for told in self.current.told)
        for line in self.kernel_lines():
            if COMPLAINT.search(line) and not (may_die and "headstart[" in line):
                self.failed(f"the kernel: {line}")

    def eventually(self, what, left):
        until = time.monotonic() + 20
        found = left()
        while found and time.monotonic() < until:
            time.sleep(0.2)
            found = left()
        if found:
            self.failed(f"{what} left: {sorted(found)[:10]}")

    def lost(self, kind, field):
        """What is loaded and nobody has: the kernel itself has what a program that is attached uses, as long as somebody has that."""
        new = linux.bpf_ids(kind) - self.bpf[kind]
        if new:
            new -= linux.held_bpf(field)
        if new and kind == linux.MAPS and linux.bpf_ids(linux.PROGRAMS) - self.bpf[linux.PROGRAMS]:
            # Of programs that are loaded: theirs go with them, and they are looked at themselves.
            return set()
        return new

    def trace_instances(self):
        """Of processes that have ended; others' go on."""
        found = []
        for path in glob.glob(os.path.join(self.instances, "headstart*")):
            numbers = re.findall(r"\d+", os.path.basename(path))
            if not any(os.path.exists(f"/proc/{number}") for number in numbers):
                found.append(path)
        return found

    def kernel_lines(self):
        while True:
            try:
                yield os.read(self.kernel, 8192).decode(errors="replace").split(";", 1)[-1].rstrip()
            except BrokenPipeError:
                continue
            except OSError:
                return

    def go(self, seconds, only):
        until = time.monotonic() + seconds
        number = only if only is not None else 0
        while only is not None or time.monotonic() < until:
            self.current = Step(self, number)
            begun = time.monotonic()
            try:
                self.current.run()
            except Exception as error:  # A fault of this script's: told with its step, as any other.
                import traceback

                traceback.print_exc()
                self.failed(f"the script itself: {error!r}")
            self.count("steps")
            if os.environ.get("STORM_VERBOSE"):
                print(f"{number} {time.monotonic() - begun:.1f} s " + " | ".join(self.current.told), flush=True)
            elif self.counts["steps"] % 100 == 0:
                print(f"{self.counts['steps']} steps, {self.failures} failures", flush=True)
            self.current = None
            if only is not None:
                return
            number += 1

    def end(self):
        """Puts all back, whatever has happened."""
        if self.is_gone:
            return
        self.is_gone = True
        if self.daemon is not None:
            self.daemon.stop()
        until = time.monotonic() + 20
        while linux.descendants() and time.monotonic() < until:
            for pid in linux.descendants():
                send(pid, signal.SIGKILL)
                send(pid, signal.SIGCONT)
            reap()
            time.sleep(0.02)
        if getattr(self, "group", None):
            with open(os.path.join(os.path.dirname(self.group), "cgroup.procs"), "w") as file:
                file.write("0")
        for path in glob.glob(f"/sys/fs/cgroup/**/storm-{os.getpid()}-*", recursive=True):
            os.rmdir(path)
        # The namespace ends with this process, and its mounts with it; the loop devices detach themselves.
        os.chdir("/")
        with open("/proc/self/mountinfo") as file:
            points = [line.split()[4] for line in file]
        for point in reversed([point for point in points if point.startswith(self.work_text)]):
            linux.libc.umount2(os.fsencode(point), 2)
        shutil.rmtree(self.work, ignore_errors=True)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=3600)
    options.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    options.add_argument("--step", type=int)
    options.add_argument("--program", default="target/debug/headstart")
    given = options.parse_args()
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse") or not os.access(given.program, os.X_OK):
        print(f"storm: this needs root, /dev/fuse and {given.program}", file=sys.stderr)
        return 2
    print(f"storm: seed {given.seed}, {given.seconds:.0f} s, {given.program}", flush=True)
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    os.umask(0o22)
    storm, status = None, 1
    begun = time.monotonic()
    try:
        storm = Storm(given.seed)
        storm.prepare(given.program)
        storm.go(given.seconds, given.step)
        storm.daemon.stop()
        status = 1 if storm.failures else 0
    except KeyboardInterrupt:
        status = 130
    finally:
        if storm is not None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            storm.end()
            counts = ", ".join(f"{what}: {count}" for what, count in sorted(storm.counts.items()))
            print(f"storm: seed {storm.seed}: {time.monotonic() - begun:.0f} s, {storm.failures} failures; {counts}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
