"""The daemon, with a state and a socket of its own, which notices all that the storm starts."""

import json
import os
import signal
import socket
import time

import linux
from starts import Start, reap


class Daemon:
    def __init__(self, storm):
        self.storm, self.start, self.said, self.stopping = storm, None, b"", []
        self.path = os.path.join(storm.work, b"control")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(64)
        self.clients = []

    @property
    def pid(self):
        return self.start.pid if self.start else 0

    def begin(self):
        """If there is none."""
        if self.start is not None and self.start.raw is None:
            return
        number = self.listener.fileno()

        def hand_over():
            os.dup2(number, 3)
            os.set_inheritable(3, True)
            self.environment[b"LISTEN_PID"] = str(os.getpid()).encode()

        self.environment = {b"PATH": b"/usr/sbin:/usr/bin", b"LISTEN_FDS": b"1", b"HEADSTART_EVEN_WARM": b"1"}
        condition = type("HandOver", (), {"rank": 0, "apply": staticmethod(hand_over)})
        words = [self.storm.program, "daemon", "--least-wait", "1", "--state", os.path.join(self.storm.work, b"daemon-state")]
        self.start = Start(words, [condition], self.environment, b"/")
        self.wanted = True

    def kill(self):
        if self.start is not None and self.start.raw is None:
            self.start.kill()
            self._end("killed", [9])

    def stop(self):
        if self.start is not None and self.start.raw is None:
            os.kill(self.pid, signal.SIGTERM)
            self._end("ended", [0])

    def _end(self, how, statuses):
        """Waits for it. What it said stays."""
        until = time.monotonic() + 60
        while self.start.raw is None and time.monotonic() < until:
            self.look()
            time.sleep(0.01)
        if self.start.raw is None:
            self.storm.failed(f"the daemon, {how}, does not end: {linux.words(self.pid)}")
            self.start.kill()
        elif self.start.raw not in statuses:
            # Before it is ready a signal ends it as any process.
            if not (how == "ended" and self.start.raw == signal.SIGTERM):
                self.storm.failed(f"the daemon, {how}, ended with {self.start.raw:#x}: {self.said[-1000:]!r}")
        self.look()
        self.start.drop()
        self.start = None

    def look(self):
        """Takes what it says and, if it has ended, its status."""
        if self.start is None:
            return
        for end in list(self.start.ends):
            os.set_blocking(end, False)
            try:
                some = os.read(end, 65536)
            except BlockingIOError:
                continue
            self.said += some
            if not some:
                os.close(end)
                del self.start.ends[end]
        reap()

    def check(self):
        """It is alive, and answers."""
        self.drop_clients()
        self.begin()
        self.look()
        if self.start.raw is not None:
            self.storm.failed(f"the daemon has ended by itself with {self.start.raw:#x}: {self.said[-1000:]!r}")
            self.start = None
            self.begin()
        if b"panicked" in self.said:
            self.storm.failed(f"the daemon says: {self.said[-1000:]!r}")
        self.said = self.said[-2000:] if b"panicked" not in self.said else b""
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(60)
                client.connect(self.path)
                client.sendall(json.dumps({"method": "org.varlink.service.GetInfo"}).encode() + b"\0")
                heard = client.recv(65536)
                if not heard:
                    self.storm.failed("the daemon closes the connection of whoever asks for GetInfo")
        except OSError as error:
            self.storm.failed(f"the daemon does not answer: {error}")
        self.look()

    def babble(self, random):
        """Connections that say anything, stay silent, or end amid."""
        kind = random.randrange(6)
        client = socket.socket(socket.AF_UNIX)
        client.setblocking(False)
        message = json.dumps({"method": "headstart.Control." + random.choice(["List", "Show", "BeginOperation", "EndOperation", "Now", "Forget", "Nothing"]),
                              "parameters": random.choice([{}, {"name": "x" * 5000}, {"key": "/bin/cat"}, {"key": "\n"}, [], None, {"name": 1}])}).encode()
        if kind == 0:
            message = random.randbytes(random.choice([1, 100, 50000]))
        elif kind == 1:
            message = bytes(byte if random.random() > 0.05 else random.randrange(256) for byte in message)
        elif kind == 2:
            message = b"[" * 50000
        elif kind == 3:
            message = (message[:-1] + b', "oneway": true}\0') * 50
        try:
            client.connect(self.path)
            client.send(message + random.choice([b"\0", b"\0\0", b""]))
        except OSError:
            pass
        self.clients.append(client)
        if len(self.clients) > 80 or kind == 4:
            self.drop_clients()

    def drop_clients(self):
        for client in self.clients:
            client.close()
        self.clients = []
