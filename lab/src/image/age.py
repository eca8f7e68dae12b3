"""Ages a mounted ext4: age.py ROOT SOURCE FULL SEED, FULL in percent.

Years of use in a minute: files are made, grow and go while the file system is ever fuller, what SOURCE holds is installed amid that, and then
replaced file by file as upgrades do, in the room that there is. What is drawn is drawn from SEED alone. Files that are only there to
take room are allocated and never written, so an image of it stays sparse.

Prints what has come of it, as one line of JSON.
"""

import fcntl, json, os, random, shutil, struct, subprocess, sys

ROOT, SOURCE, FULL, SEED = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
# Of a disk in use. The churn before the end goes this far above what it ends with.
MARGIN = 6
AGE = os.path.join(ROOT, "var", "old")
draw = random.Random(SEED)
churn, made = [], 0


def full():
    found = os.statvfs(ROOT)
    return 100 * (1 - found.f_bfree / found.f_blocks)


def size():
    """Of files on real machines: the median is 8 KiB, the mean 200 (lognormal)."""
    return max(1, min(int(draw.lognormvariate(9, 2.4)), 64 << 20))


def make():
    """A file of several steps, which others come between."""
    global made
    made += 1
    path = os.path.join(AGE, str(made % 50), str(made))
    try:
        with open(path, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, size())
    except OSError:
        # Full.
        os.unlink(path)
        return remove(20)
    churn.append(path)


def append():
    path = draw.choice(churn)
    try:
        with open(path, "ab") as file:
            os.posix_fallocate(file.fileno(), os.path.getsize(path), size())
    except OSError:
        remove(20)


def remove(count):
    for _ in range(min(count, len(churn))):
        at = draw.randrange(len(churn))
        churn[at], churn[-1] = churn[-1], churn[at]
        os.unlink(churn.pop())


def use(steps, most):
    """So many things happen; the file system gets no fuller than `most`."""
    for _ in range(steps):
        what = draw.random()
        if full() > most:
            remove(1 + len(churn) // 200)
        elif what < 0.55 or not churn:
            make()
        elif what < 0.8:
            append()
        else:
            remove(1)


def fill(most):
    while full() < most:
        before = full()
        use(50, most)
        if full() <= before and not churn:
            sys.exit("the image is too small for what is to be in it")


def install(path, target):
    """One regular file, written in pieces as unpacking does; what comes between is written at the same time."""
    pieces = draw.choice((1, 1, 1, 1, 2, 4))
    with open(path, "rb") as source, open(target, "wb") as file:
        data = source.read()
        step = max(1, -(-len(data) // pieces))
        for at in range(0, len(data), step):
            file.write(data[at:at + step])
            file.flush()
            if pieces > 1:
                os.fsync(file.fileno())
                use(2, FULL + MARGIN)
    shutil.copystat(path, target)
    found = os.stat(path)
    os.chown(target, found.st_uid, found.st_gid)
    os.chmod(target, found.st_mode & 0o7777)
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))


def extents(path):
    """Of a file, by FIEMAP."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        answer = bytearray(struct.pack("QQIIII", 0, 2**64 - 1, 0, 0, 0, 0))
        fcntl.ioctl(file, 0xC020660B, answer)
        return struct.unpack("QQIIII", answer)[3]
    finally:
        os.close(file)


for number in range(50):
    os.makedirs(os.path.join(AGE, str(number)))
# A machine is installed once, on an empty disk, …
subprocess.run(["cp", "-a", SOURCE + "/.", ROOT], check=True)
installed = full()
if installed > FULL:
    sys.exit(f"{installed:.0f} % full with what is to be in it")
# … then used until it was full for the first time, cleared up, and used on …
for _ in range(3):
    fill(min(FULL + MARGIN, 97))
    remove(len(churn) // 3)
fill(FULL)
# … and meanwhile everything on it was replaced. In which order is nobody's choice.
regular = []
for directory, names, files in os.walk(SOURCE):
    names.sort()
    for name in sorted(files):
        path = os.path.join(directory, name)
        found = os.lstat(path)
        if os.path.isfile(path) and not os.path.islink(path) and found.st_nlink == 1 and found.st_size > 0:
            regular.append(os.path.relpath(path, SOURCE))
draw.shuffle(regular)
for number, path in enumerate(regular):
    target = os.path.join(ROOT, path)
    times = os.stat(os.path.dirname(target))
    install(os.path.join(SOURCE, path), target + ".new")
    os.rename(target + ".new", target)
    os.utime(os.path.dirname(target), ns=(times.st_atime_ns, times.st_mtime_ns))
    use(3, FULL + MARGIN)
    if number % 40 == 0:
        # Allocated now, not all at the end.
        os.sync()
while full() > FULL:
    remove(1 + len(churn) // 500)
fill(FULL - 0.2)
os.sync()
counts = [extents(os.path.join(ROOT, path)) for path in regular]
print(json.dumps({
    "full": round(full(), 1),
    "files": len(regular),
    "extents_a_file": round(sum(counts) / max(1, len(counts)), 2),
    "in_pieces": sum(count > 1 for count in counts),
    "churn": len(churn),
}))
