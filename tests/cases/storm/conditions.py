"""What a start has around it: each condition is drawn, told, and laid on the process that will execute the command, or headstart and the command."""

import errno
import os
import resource
import signal

import linux

KIB, MIB = 1 << 10, 1 << 20
# What each shell calls to run a program: fork, and to wait for it.
OF_SHELLS = {56, 57, 58, 61, 435}


class Condition:
    """`rank`: in this order they are laid on a process; what takes something away comes last."""

    def __init__(self, rank, text, apply, makes_unsteady=False):
        self.rank, self.text, self.apply, self.makes_unsteady = rank, text, apply, makes_unsteady


def seccomp(random, step):
    count = random.choice([1, 1, 1, 2, 5, 20, 60])
    calls = sorted(set(random.sample(range(470), count)) - OF_SHELLS)
    known = {"kill": linux.KILL_PROCESS, "kill the thread": linux.KILL_THREAD}
    known |= {errno.errorcode[number]: linux.ERRNO | number for number in (errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EACCES, errno.EINVAL)}
    name = random.choice(["kill", "kill", "kill the thread", "EPERM", "ENOSYS", "EOPNOTSUPP", "EACCES", "EINVAL"])
    return Condition(90, f"filter: {name} at {calls}", lambda: linux.filter_calls(calls, known.get(name, linux.ERRNO | errno.ENOTSUP)))


def limits(random, step):
    kinds = {
        "data": (resource.RLIMIT_DATA, [700 * KIB, 1000 * KIB, 1500 * KIB, 3 * MIB, 20 * MIB, 200 * MIB]),
        "as": (resource.RLIMIT_AS, [30 * MIB, 60 * MIB, 200 * MIB]),
        "stack": (resource.RLIMIT_STACK, [64 * KIB, 200 * KIB, MIB]),
        "nofile": (resource.RLIMIT_NOFILE, [4, 6, 8, 12, 20, 64]),
        "nproc": (resource.RLIMIT_NPROC, [1, 5, 50]),
        "fsize": (resource.RLIMIT_FSIZE, [0, 1, 4096, 100000]),
        "core": (resource.RLIMIT_CORE, [0, 1, MIB]),
        "memlock": (resource.RLIMIT_MEMLOCK, [0, 4096]),
        "sigpending": (resource.RLIMIT_SIGPENDING, [0, 1]),
        "cpu": (resource.RLIMIT_CPU, [5]),
    }
    chosen = {name: random.choice(kinds[name][1]) for name in random.sample(sorted(kinds), random.choice([1, 1, 2, 3, 10]))}

    def apply():
        for name, value in chosen.items():
            if name != "fsize":
                resource.setrlimit(kinds[name][0], (value, value))
        if "fsize" in chosen:
            resource.setrlimit(resource.RLIMIT_FSIZE, (chosen["fsize"],) * 2)

    return Condition(80, "limits: " + ", ".join(f"{name}={value}" for name, value in chosen.items()), apply)


def group(random, step):
    """memory.max and pids.max, or what they are called in version 1."""
    words = []
    places = []
    if random.random() < 0.6:
        most = random.choice([8, 16, 24, 32, 64, 300]) * MIB
        words.append(f"memory={most >> 20}M")
        places.append(step.group("memory", {"memory.limit_in_bytes": most, "memory.memsw.limit_in_bytes": most}, {"memory.max": most, "memory.swap.max": 0}))
    if not words or random.random() < 0.5:
        most = random.choice([1, 2, 3, 4, 6, 10, 30, 120])
        words.append(f"tasks={most}")
        places.append(step.group("pids", {"pids.max": most}, {"pids.max": most}))

    def apply():
        for place in places:
            with open(os.path.join(place, "cgroup.procs"), "w") as file:
                file.write("0")

    return Condition(10, "group: " + " ".join(words), apply, makes_unsteady=True)


def namespace(random, step):
    """Mounts of its own, in which something is hidden, or that cannot be written."""
    kind = random.choice(["proc hidden", "proc empty", "proc subset", "proc invisible", "sys empty", "cgroup empty", "tmp empty", "dev null only", "read-only root",
                          "nothing", "tracing empty", "state hidden", "proc read-only"])

    def apply():
        linux.unshare(linux.NEWNS)
        linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
        if kind == "proc hidden":
            linux.mount("/mnt", "/proc", None, linux.MS_BIND)
        elif kind == "proc empty":
            linux.mount("t", "/proc", "tmpfs")
        elif kind == "proc subset":
            linux.mount("proc", "/proc", "proc", 0, "subset=pid")
        elif kind == "proc invisible":
            linux.mount("proc", "/proc", "proc", 0, "hidepid=invisible")
        elif kind == "proc read-only":
            linux.mount(None, "/proc", None, linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY)
        elif kind == "sys empty":
            linux.mount("t", "/sys", "tmpfs")
        elif kind == "cgroup empty":
            linux.mount("t", "/sys/fs/cgroup", "tmpfs")
        elif kind == "tracing empty":
            linux.mount("t", "/sys/kernel", "tmpfs")
        elif kind == "tmp empty":
            linux.mount("t", "/tmp", "tmpfs")
        elif kind == "dev null only":
            linux.mount("t", "/dev", "tmpfs")
            os.mknod("/dev/null", 0o20666, os.makedev(1, 3))
        elif kind == "read-only root":
            linux.mount("/", "/", None, linux.MS_BIND)
            linux.mount(None, "/", None, linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY)
        elif kind == "state hidden":
            linux.mount("t", step.state, "tmpfs", linux.MS_RDONLY)

    if kind == "state hidden":
        os.makedirs(step.state, exist_ok=True)
    return Condition(20, f"mounts: {kind}", apply)


def other_namespaces(random, step):
    kinds = {"network": linux.NEWNET, "ipc": linux.NEWIPC, "names": linux.NEWUTS, "users": linux.NEWUSER}
    names = random.sample(sorted(kinds), random.choice([1, 2, 4]))

    def apply():
        linux.unshare(sum(kinds[name] for name in names))

    return Condition(30, "namespaces: " + " ".join(names), apply)


def closed(random, step):
    numbers = random.choice([[0], [1], [2], [0, 1], [1, 2], [0, 2], [0, 1, 2]])

    def apply():
        for number in numbers:
            os.close(number)

    return Condition(85, f"closed: {numbers}", apply)


def output_elsewhere(random, step):
    """/dev/full, or a pipe that nobody reads."""
    kind = random.choice(["full", "broken pipe"])

    def apply():
        if kind == "full":
            end = os.open("/dev/full", os.O_WRONLY)
        else:
            reader, end = os.pipe()
            os.close(reader)
        os.dup2(end, 1)
        os.close(end)

    return Condition(5, f"output: {kind}", apply)


def user(random, step):
    number = random.choice([65534, *range(10001, 10030)])

    def apply():
        os.setgroups([])
        os.setresgid(number, number, number)
        os.setresuid(number, number, number)

    return Condition(70, f"user {number}", apply)


def capabilities(random, step):
    """Some are dropped for good."""
    dropped = random.sample(range(41), random.choice([1, 10, 41]))

    def apply():
        for number in dropped:
            linux.libc.prctl(24, number, 0, 0, 0)

    return Condition(60, f"without capabilities {sorted(dropped)}", apply)


def no_new_privileges(random, step):
    return Condition(75, "no new privileges", linux.no_new_privileges)


def scheduling(random, step):
    kind = random.choice(["one processor", "nice 19", "idle", "batch"])

    def apply():
        if kind == "one processor":
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        elif kind == "nice 19":
            os.nice(19)
        else:
            os.sched_setscheduler(0, os.SCHED_IDLE if kind == "idle" else os.SCHED_BATCH, os.sched_param(0))

    return Condition(40, f"scheduling: {kind}", apply)


def inherited(random, step):
    """Descriptors and ignored or blocked signals, as careless parents leave them."""
    ignored = random.sample([1, 2, 3, 13, 15, 17], random.choice([0, 1, 3]))
    blocked = random.sample([1, 2, 10, 15, 17, 18, 20], random.choice([0, 1, 3]))
    open_ones = random.choice([0, 3, 100])
    mask = random.choice([0o22, 0o777, 0])

    def apply():
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
        for _ in range(open_ones):
            os.set_inheritable(os.open("/etc/passwd", os.O_RDONLY), True)
        os.umask(mask)

    return Condition(50, f"inherited: ignored {ignored}, blocked {blocked}, {open_ones} descriptors, mask {mask:o}", apply)


def directory_gone(random, step):
    path = os.path.join(step.base, b"gone")

    def apply():
        os.makedirs(path, exist_ok=True)
        os.chdir(path)
        os.rmdir(path)

    return Condition(6, "its directory is gone", apply)


ALL = [seccomp, seccomp, seccomp, limits, limits, limits, group, group, namespace, namespace, namespace, other_namespaces, closed, closed, output_elsewhere, user,
       user, capabilities, no_new_privileges, scheduling, inherited, directory_gone]


def draw(random, step):
    """None to four, each of its kind once."""
    kinds = []
    for kind in random.sample(ALL, random.choice([0, 1, 1, 1, 2, 2, 3, 4])):
        if kind not in kinds:
            kinds.append(kind)
    return [kind(random, step) for kind in kinds]
