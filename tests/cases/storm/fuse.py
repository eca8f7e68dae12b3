"""A file system of a few files whose server is ours: slow, hanging or gone when a test wants it so (FUSE's protocol, by hand)."""

import mmap
import os
import signal
import struct
import time

from linux import MS_NODEV, MS_NOSUID, mount
from starts import end_helper

QUICK, SLOW, HANGING = 0, 1, 2
ROOT = 1


class Fuse:
    """Mounted at `point` with files NAME of these contents, served by a process of its own."""

    def __init__(self, point, files):
        self.mode = mmap.mmap(-1, 4096)
        device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
        mount("storm", point, "fuse.storm", MS_NOSUID | MS_NODEV, options)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                serve(device, self.mode, list(files.items()))
            finally:
                os._exit(0)
        os.close(device)

    def become(self, mode):
        self.mode[0] = mode

    def end(self):
        """Its server ends: what waits for it fails."""
        if self.pid:
            end_helper(self.pid)
            self.pid = 0


def attributes(files, node):
    is_root = node == ROOT
    size = 0 if is_root else len(files[node - 2][1])
    mode = 0o40755 if is_root else 0o100755
    return struct.pack("<QQQQQQIIIIIIIIII", node, size, (size + 511) // 512, 1, 1, 1, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(files, code, node, body):
    """What is sent back: an error's number, or bytes."""
    if code == 26:  # INIT
        return struct.pack("<IIIIHHIIHHIIHHIIII", 7, 31, 1 << 17, 0, 12, 9, 1 << 17, 1, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    if code == 1:  # LOOKUP
        name = body.rstrip(b"\0")
        for number, (known, _) in enumerate(files):
            if known == name and node == ROOT:
                return struct.pack("<QQQQII", number + 2, 0, 3600, 3600, 0, 0) + attributes(files, number + 2)
        return 2
    if code == 3:  # GETATTR
        return struct.pack("<QII", 3600, 0, 0) + attributes(files, node)
    if code in (14, 27):  # OPEN, OPENDIR
        return struct.pack("<QII", 0, 2, 0)
    if code in (15, 28):  # READ, READDIR
        offset, size = struct.unpack_from("<QI", body, 8)
        if code == 15:
            return files[node - 2][1][offset : offset + size]
        entries = b""
        for number, (name, _) in list(enumerate(files))[offset:]:
            entry = struct.pack("<QQII", number + 2, number + 1, len(name), 8) + name
            entry += bytes(-len(entry) % 8)
            if len(entries) + len(entry) > size:
                break
            entries += entry
        return entries
    if code in (18, 25, 29, 34):  # FLUSH, RELEASE, RELEASEDIR, ACCESS
        return b""
    return 38


def serve(device, mode, files):
    while True:
        try:
            message = os.read(device, (1 << 17) + 4096)
        except OSError as error:
            if error.errno == 19:  # It is not mounted any more.
                return
            continue
        _, code, unique, node = struct.unpack_from("<IIQQ", message)
        while mode[0] == HANGING and code != 26:
            time.sleep(0.01)
        if mode[0] == SLOW and code in (1, 14, 15):
            time.sleep(0.05)
        if code in (2, 36, 42):  # FORGET, INTERRUPT, BATCH_FORGET: nobody waits for an answer.
            continue
        reply = answer(files, code, node, message[40:])
        error, reply = (-reply, b"") if isinstance(reply, int) else (0, reply)
        try:
            os.write(device, struct.pack("<IiQ", 16 + len(reply), error, unique) + reply)
        except OSError:
            pass
