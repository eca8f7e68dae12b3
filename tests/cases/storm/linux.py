"""What Python's own modules do not call: namespaces, mounts, filters of system calls, loop devices, who descends from whom."""

import ctypes
import errno
import fcntl
import os
import struct
import subprocess

libc = ctypes.CDLL(None, use_errno=True)

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
# seccomp(2): what a filter answers.
# bpf(2).
PROGRAMS, MAPS = 11, 12
KILL_PROCESS, KILL_THREAD, ERRNO, ALLOW = 0x80000000, 0, 0x50000, 0x7FFF0000


def _check(result, what):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _bytes(value):
    return None if value is None else os.fsencode(value)


def mount(source, target, kind=None, flags=0, data=None):
    _check(libc.mount(_bytes(source), _bytes(target), _bytes(kind), ctypes.c_ulong(flags), _bytes(data)), f"mount {target}")


def umount(target, flags=0):
    _check(libc.umount2(_bytes(target), flags), f"umount {target}")


def unshare(flags):
    _check(libc.unshare(flags), "unshare")


def prctl(*words):
    _check(libc.prctl(*[ctypes.c_ulong(word) for word in words]), f"prctl {words[0]}")


def execute(path, words, environment):
    """execve(2), also by an empty name, which Python refuses."""
    variables = [name + b"=" + value for name, value in environment.items()]
    array = lambda texts: (ctypes.c_char_p * (len(texts) + 1))(*texts, None)  # noqa: E731
    libc.execve(path, array(words), array(variables))
    raise OSError(ctypes.get_errno(), "execve")


def be_subreaper():
    """What loses its parent is ours from then on: nothing that a start leaves can hide."""
    prctl(36, 1, 0, 0, 0)


def no_new_privileges():
    prctl(38, 1, 0, 0, 0)


def filter_calls(calls, answer):
    """Load the number; for each call: if equal, the answer; else allow."""
    code = struct.pack("HBBI", 0x20, 0, 0, 0)
    for call in calls:
        code += struct.pack("HBBI", 0x15, 0, 1, call) + struct.pack("HBBI", 0x06, 0, 0, answer)
    code += struct.pack("HBBI", 0x06, 0, 0, ALLOW)
    room = ctypes.create_string_buffer(code)
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(room)))
    no_new_privileges()
    _check(libc.prctl(22, ctypes.c_ulong(2), program, ctypes.c_ulong(0), ctypes.c_ulong(0)), "seccomp")


def loop_devices(below):
    """Loop devices whose file lies below a directory: (device, file)."""
    found = []
    for name in os.listdir("/sys/block"):
        try:
            with open(f"/sys/block/{name}/loop/backing_file", "rb") as file:
                backing = os.fsdecode(file.read().rstrip(b"\n"))
        except OSError:
            continue
        if backing.startswith(below + "/"):
            found.append(("/dev/" + name, backing))
    return found


def attach(image):
    """A loop device of this image, which detaches itself when nobody uses it any more."""
    run = subprocess.run(["losetup", "--find", "--show", image], capture_output=True, text=True, check=True)
    return run.stdout.strip()


def detach(device):
    with open(device, "rb") as file:
        try:
            fcntl.ioctl(file, 0x4C01)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise


def mounts():
    with open("/proc/self/mountinfo", "rb") as file:
        return sorted(b" ".join(line.split()[3:5]) for line in file)


def status(pid):
    """Fields of /proc/PID/status; none if it has ended."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return {}
    return dict(line.split(":", 1) for line in lines if ":" in line)


def descendants(of=None):
    """All that descends from a process, or from this one: {pid: state}."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    rest = file.read().rsplit(b")", 1)[1].split()
            except OSError:
                continue
            parents[int(name)] = (int(rest[1]), rest[0].decode())
    found, new = {}, {os.getpid() if of is None else of}
    while new:
        new = {pid for pid, (parent, _) in parents.items() if parent in new and pid not in found}
        found.update((pid, parents[pid][1]) for pid in new)
    return found


def executable(pid):
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def session(pid):
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def words(pid):
    """Its arguments, to be read by people."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace")[:200]
    except OSError:
        return ""


def bpf_ids(command):
    """The ids of all programs (bpf(2): BPF_PROG_GET_NEXT_ID) or maps (BPF_MAP_GET_NEXT_ID) that are loaded on the machine."""
    found, last = set(), 0
    while True:
        attributes = ctypes.create_string_buffer(struct.pack("III", last, 0, 0) + bytes(116))
        if libc.syscall(321, command, attributes, 128) != 0:
            return found
        last = struct.unpack_from("I", attributes, 4)[0]
        found.add(last)


def descriptors(pid):
    """What /proc/PID/fdinfo tells of each of its descriptors: the fields of it."""
    try:
        names = os.listdir(f"/proc/{pid}/fdinfo")
    except OSError:
        return
    for name in names:
        try:
            with open(f"/proc/{pid}/fdinfo/{name}") as file:
                yield dict(line.split(":", 1) for line in file.read().splitlines() if ":" in line)
        except OSError:
            continue


def held_bpf(kind):
    """The ids of the programs (`prog_id`) or maps (`map_id`) that a process has a descriptor of, or of what they are attached by."""
    return {int(fields[kind]) for pid in filter(str.isdigit, os.listdir("/proc")) for fields in descriptors(pid) if kind in fields}


def map_sizes(pid):
    """The bytes that the kernel keeps for each BPF map of a process, by the maps' ids."""
    return {int(fields["map_id"]): int(fields.get("memlock", 0)) for fields in descriptors(pid) if "map_id" in fields}


def tracing():
    """Where tracefs is."""
    with open("/proc/self/mountinfo") as file:
        mounted = [line.split() for line in file]
    places = [words[4] for words in mounted if words[words.index("-") + 1] == "tracefs"]
    return next((place for place in sorted(places, key=len) if os.path.isdir(place + "/instances")), "/sys/kernel/tracing")


def memory_group(name):
    """A control group of this process and all that it begins, in the version that the machine has; none where that cannot be."""
    for place, version in (("/sys/fs/cgroup/memory", 1), ("/sys/fs/cgroup", 2)):
        path = os.path.join(place, name)
        try:
            if version == 2:
                with open(f"{place}/cgroup.subtree_control", "w") as file:
                    file.write("+memory")
            os.mkdir(path)
            with open(f"{path}/cgroup.procs", "w") as file:
                file.write("0")
            return path
        except OSError:
            if os.path.isdir(path):
                os.rmdir(path)
    return None


def group_memory(path):
    """The bytes that its processes have, and the kernel has for them, but what it would give back at once (version 1 tells only of the first)."""
    try:
        with open(f"{path}/memory.stat") as file:
            told = {name: int(value) for name, value in (line.split() for line in file)}
    except OSError:
        return 0
    kernel = told.get("kernel", 0) - told.get("slab_reclaimable", 0)
    return told.get("rss", told.get("anon", 0)) + max(kernel, 0)
