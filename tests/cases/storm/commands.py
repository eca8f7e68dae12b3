"""Commands, each of which says and does the same each time under the same conditions."""

import os
import shutil


class Command:
    def __init__(self, name, words, stdin=b"", unordered=False, argv0=None, directory=None, environment=None):
        self.name, self.words, self.stdin, self.unordered = name, words, stdin, unordered
        self.argv0, self.directory, self.environment = argv0, directory, environment


def odd_name(random):
    return random.choice([b"a\nb", b"\xff\xfe\x80", b"x" * 255, b"gone (deleted)", b" ", b"-n", b"--", b"a\tb\\040c", b"\x1b[31m", b"'\"$(x)`", b"%s%n"])


def files(random, place, count=None):
    """Files of the step's own, on the disk."""
    below = os.path.join(place, b"a")
    os.makedirs(below, exist_ok=True)
    paths = []
    for number in range(count or random.choice([1, 5, 40, 200])):
        path = os.path.join(below, odd_name(random) if number == 0 and random.random() < 0.3 else b"%d" % number)
        with open(path, "wb") as file:
            file.write(random.randbytes(random.choice([0, 1, 4096, 50000, 400000])))
        paths.append(path)
    return paths


# Without a pipeline: where a filter refuses dup2 each of its commands writes to where the shell does, in any order.
READS = 'cksum -- "$@"; [ -e skip ] || cat b/* >/dev/null 2>&1; [ -e skip ] || ls -lR b >/dev/null 2>&1; exit 3'
MIRROR = """umask; ulimit -a; env | sort; pwd; ls /proc/self/fd | wc -l; cat /proc/self/oom_score_adj /proc/self/cgroup /proc/self/timerslack_ns
grep -E '^(Sig[PBIC]|Shd|Cap|Uid|Gid|Groups|NoNew|Seccomp|Cpus_allowed:|Speculation|THP)' /proc/self/status; nice; cat /proc/self/personality; exit 5"""


def shell(random, step):
    return Command("a shell's", ["sh", "-c", "echo out; echo err >&2; exit 7"])


def reads(random, step):
    return Command("reads files", ["sh", "-c", READS, "sh", *files(random, step.place)])


def mirror(random, step):
    return Command("tells what it inherits", ["sh", "-c", MIRROR])


def python(random, step):
    return Command("python", ["python3", "-c", "import json, decimal, email; print(json.dumps(sorted(range(5))))"])


def by_thread(random, step):
    script = "import os, threading, time\nthreading.Thread(target=lambda: os.execv('/bin/sh', ['sh', '-c', 'echo by a thread; exit 9'])).start()\ntime.sleep(60)"
    return Command("a thread executes", ["python3", "-c", script])


def double_fork(random, step):
    script = "(sh -c '(sleep 0.3; echo grandchild) & exit') & (sleep 0.1; echo child) & echo parent; exit 4"
    return Command("outlived by its children", ["sh", "-c", script], unordered=True)


def by_signal(random, step):
    number = random.choice([1, 2, 3, 6, 9, 11, 13, 15, 31])
    return Command(f"killed by signal {number}", ["sh", "-c", f"echo x; kill -{number} $$; sleep 1"])


def missing(random, step):
    word = random.choice(["/nonexistent", "/etc", "/etc/passwd", "/dev/null", "/etc/passwd/x"])
    return Command(f"{word}, no program", [word])


def copies(random, step):
    return Command("reads its input", [random.choice(["cat", "cksum", "sort", "head"])], stdin=random.randbytes(random.choice([0, 10, 50000])))


def long_arguments(random, step):
    return Command("arguments of 1.9 MB", ["sh", "-c", "echo $# ${#1}", "sh", *["x" * 120000] * 16])


def many_arguments(random, step):
    return Command("100,000 arguments", ["sh", "-c", "echo $#", "sh", *["y"] * 100000])


def no_name(random, step):
    return Command("an empty argv[0]", ["bash", "-c", "exec -a '' cat /proc/self/cmdline"])


def own_program(random, step):
    """A copy of a program under an odd name."""
    path = os.path.join(step.place, odd_name(random))
    shutil.copy(b"/bin/cat", path)
    return Command("a program of an odd name", [path, *files(random, step.place, 5)])


def script_without_line(random, step):
    path = os.path.join(step.place, b"script")
    with open(path, "wb") as file:
        file.write(random.choice([b"#!/bin/sh\necho script; exit 2\n", b"#!/bin/cat\nx\n", b"#! /bin/sh -e\nfalse\necho no\n", b"#!/nonexistent\n", b"#!"]))
    os.chmod(path, 0o755)
    return Command("a script", [path])


def replaced(random, step):
    path = os.path.join(step.place, b"program")
    script = 'cp /bin/cat "$1.1"; mv "$1.1" "$1"; "$1" /etc/hostname; cp /bin/cksum "$1.2"; mv "$1.2" "$1"; "$1" /etc/hostname; rm "$1"; exit 6'
    return Command("its program is replaced amid", ["sh", "-c", script, "sh", path])


def deep(random, step):
    """Works below 300 directories: no absolute path leads there."""
    script = "i=0; while [ $i -lt 300 ]; do mkdir -p dddddddddddddddd; cd -P dddddddddddddddd || exit; i=$((i+1)); done; echo deep >f; cat f; exec cat f"
    return Command("deep directories", ["sh", "-c", script])


def links(random, step):
    script = 'ln -f "$1" "$1.l"; cat "$1.l" | cksum; rm -f "$1.l"; cat "$1" | cksum'
    return Command("hard links", ["sh", "-c", script, "sh", *files(random, step.place, 3)])


def removed(random, step):
    return Command("its directory is removed", ["sh", "-c", 'mkdir -p gone; cd gone; rmdir ../gone; cat "$1" | cksum; pwd -P 2>/dev/null; echo $?', "sh", *files(random, step.place, 2)])


def mounted(random, step):
    """An image that only the start mounts, of which it reads and executes."""
    image = random.choice(step.storm.images)
    script = f'mount -o loop,ro "$1" m || exit 8; cat m/data/* | cksum; m/cat m/data/1 | cksum; mount -t tmpfs t m2 && cp m/cat m2/x && m2/x m/data/2 | cksum; umount m; exit {random.choice([0, 5])}'
    for name in (b"m", b"m2"):
        os.makedirs(os.path.join(step.place, name), exist_ok=True)
    return Command(f"mounts {os.path.basename(image)}", ["unshare", "-m", "sh", "-c", script, "sh", image])


def overlaid(random, step):
    for name in (b"up", b"work", b"o"):
        os.makedirs(os.path.join(step.place, name), exist_ok=True)
    script = "mount -t overlay o -o lowerdir=a,upperdir=up,workdir=work o || exit 8; cat o/* | cksum; echo new >>o/1; cat o/1 | cksum; rm o/1; ls o | wc -l"
    files(random, step.place, 5)
    return Command("mounts an overlay", ["unshare", "-m", "sh", "-c", script + "; umount o; rm -rf up work; mkdir up work"])


def pid_namespace(random, step):
    return Command("process 1 of a namespace", ["unshare", "-p", "-f", "--mount-proc", "sh", "-c", "echo $$; exit 3"])


def of_32_bits(random, step):
    if step.storm.calls is None:
        return shell(random, step)
    files(random, step.place, 40)
    return Command("32-bit calls", [step.storm.calls, os.path.join(step.place, b"a"), "32"])


def ends_at_once(random, step):
    return Command("ends at once", [random.choice(["true", "false"])])


# None is waited for before all have begun: each takes a task until then, so where there are too few it fails at the same one each time.
HUNDRED = """import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
begun = []
try:
    for _ in range(100):
        begun.append(os.fork())
        if not begun[-1]:
            os.execv("/bin/true", ["true"])
except OSError as error:
    print(len(begun), error.errno)
for pid in begun:
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        pass
print("all")
"""


def many_processes(random, step):
    return Command("a hundred processes", ["/usr/bin/python3", "-I", "-S", "-c", HUNDRED])


def closes_all(random, step):
    return Command("closes its output", ["sh", "-c", "echo before; exec >&- 2>&- <&-; sleep 0.2; exit 12"])


def broken_pipe(random, step):
    return Command("a broken pipe", ["bash", "-c", "yes | head -n 3; echo ${PIPESTATUS[0]}"])


ALL = [shell, reads, reads, reads, mirror, python, by_thread, double_fork, by_signal, missing, copies, long_arguments, many_arguments, no_name, own_program,
       script_without_line, replaced, deep, links, removed, mounted, mounted, overlaid, pid_namespace, of_32_bits, ends_at_once, many_processes, closes_all,
       broken_pipe]

WRAPPERS = [["flock", "lock"], ["nice", "-n", "3"], ["env", "A=b"], ["setarch", "-R"], ["prlimit", "--core=0"], ["timeout", "100"], ["taskset", "1"],
            ["chrt", "-o", "0"], ["setsid", "-w"], ["nohup"], ["stdbuf", "-oL"], ["sh", "-c", '"$@"', "sh"], ["xargs", "-n", "99999", "-0", "-a", "/dev/null"],
            ["/lib64/ld-linux-x86-64.so.2", "/usr/bin/env"], ["setpriv", "--no-new-privs"], ["unshare", "-m"], ["unshare", "-U", "-r"], ["unshare", "-n"],
            ["ionice", "-c", "3"], ["python3", "-c", "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])"], ["busybox", "env"]]


def draw(random, step):
    command = random.choice(ALL)(random, step)
    wrapped = []
    while random.random() < 0.25 and len(wrapped) < 3:
        wrapper = random.choice(WRAPPERS)
        # One that waits for the lock which another around it has waits for ever.
        if shutil.which(wrapper[0]) and (wrapper[0] != "flock" or "flock" not in wrapped):
            wrapped.append(wrapper[0])
            command.words = [*wrapper, *command.words]
    if wrapped:
        command.name += " behind " + " ".join(reversed(wrapped))
    return command
