"""Which names leave a collection."""

import base64
import random
import tempfile
import time
import uuid

import pytest
from support import collected, entry, profile, rows

from headstart_fleet.names import key_may_leave, may_leave
from headstart_fleet.tables import SCHEMA

PUBLIC = """
/etc/ld.so.cache /etc/passwd /usr/lib/python3/dist-packages/__pycache__/x.cpython-311.pyc /usr/lib/locale/locale-archive
/var/lib/dpkg/status /boot/vmlinuz-6.1.0-31-amd64 /boot/initrd.img-6.1.0-31-amd64 /etc/ssl/certs/ca-certificates.crt
/usr/share/mime/mime.cache /var/cache/apt/pkgcache.bin /opt/google/chrome/chrome /usr/local/lib/libfoo.so.1.2.3
/usr/lib/modules/6.12.5-amd64/modules.dep.bin /etc/X11/xorg.conf /var/lib/NetworkManager/NetworkManager.state
/opt/libreoffice7.6/program/libmergedlo.so /usr/lib/jvm/java-17-openjdk-amd64/lib/modules /etc/udev/hwdb.bin
/etc/systemd/system/multi-user.target.wants/cron.service /usr/share/icons/hicolor/icon-theme.cache
/opt/app/PyQt5/QtCore.abi3.so /etc/alternatives/x-www-browser /srv/app/node_modules/lodash/index.js /lib64 /
/usr/local/lib/python3.11/site-packages/numpy/core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so
/usr/include/c++/12/vector /usr/lib/gcc/x86_64-linux-gnu/12 /usr/lib/python3/dist-packages/numpy/ma/__pycache__/core.cpython-311.pyc
""".split()

PRIVATE = """
/home/anna/.bashrc /home/x /root/.profile /var/home/bo/a /srv/home/carl/x /data/users/dora/y /var/mail/anna /tmp/x
/var/spool/cron/crontabs/anna /run/user/1000/bus /media/anna/USB/a /mnt/x /proc/12/maps /dev/shm/x /srv/x/.cache/y
/opt/x/.ssh/id_rsa /var/tmp/y
""".split()

BY_CHANCE = """
/var/cache/fontconfig/3830d5c3ddfd5cd38a049b759396e72e-le64.cache-7 /var/lib/x/4711 /var/lib/x/job.4711
/var/lib/x/12 /usr/lib/x/4711
/var/lib/x/tmpab12cd_3 /opt/a/tmp.AbC123xyZ0 /var/log/journal/0123456789abcdef0123456789abcdef/system.journal
/var/lib/x/123e4567-e89b-12d3-a456-426614174000 /srv/x/conf.aBcDeF /srv/x/k8Jd0s /etc/.passwd.swp /srv/sess_abcdef
/var/lib/docker/overlay2/a1b2c3d4e5f60718/diff /srv/data/1699999999 /etc/ssl/certs/3513523f.0 /srv/core.1234 /opt/x/a~
/srv/upload/x.tmp /srv/app/app.pid /srv/.nfs000000000abc
""".split()


@pytest.mark.parametrize("path", PUBLIC)
def test_names_that_all_machines_have_are_kept(path):
    assert may_leave(path, False)


@pytest.mark.parametrize("path", PRIVATE)
def test_what_people_have_never_leaves(path):
    assert not may_leave(path, False)


@pytest.mark.parametrize("path", [path for path in PRIVATE if path.startswith(("/home/", "/root/", "/tmp/"))])
def test_not_even_as_a_packages_file(path):
    assert not may_leave(path, True)


@pytest.mark.parametrize("path", BY_CHANCE)
def test_names_by_chance_do_not_leave_but_as_a_packages_file(path):
    assert not may_leave(path, False)
    assert may_leave(path, True), "the archive publishes it"


def made_by_chance(count):
    """Names as programs make them."""
    draw = random.Random(7)
    temporary = tempfile._RandomNameSequence()
    for number in range(count):
        pid = draw.randrange(300, 4_000_000)
        yield f"/var/lib/app/{uuid.UUID(int=draw.getrandbits(128))}/state"
        yield f"/var/lib/app/{draw.getrandbits(160):040x}"
        yield f"/var/lib/app/{draw.getrandbits(256):064X}.blob"
        yield f"/var/lib/app/worker-{pid}"
        yield f"/var/lib/app/worker.{pid}.log.{pid}"
        yield f"/var/lib/app/{pid}"
        yield f"/var/lib/app/tmp{next(temporary)}"
        yield f"/var/lib/app/{1_600_000_000 + draw.randrange(10**8)}.json"
        yield f"/home/user{number}/x"


def test_of_many_names_by_chance_none_is_kept():
    kept = [path for path in made_by_chance(5000) if may_leave(path, False)]
    assert kept == []


def test_names_in_base_64_are_recognised_nearly_always():
    draw = random.Random(4)
    names = [base64.urlsafe_b64encode(draw.randbytes(24)).decode() for _ in range(20000)]
    kept = [name for name in names if may_leave(f"/srv/app/{name}", False)]
    assert len(kept) / len(names) < 0.001, kept


def test_the_names_of_mkstemp_are_recognised_nearly_always():
    draw = random.Random(3)
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    names = ["".join(draw.choices(letters, k=6)) for _ in range(20000)]
    kept = [name for name in names if may_leave(f"/var/lib/app/state.{name}", False)]
    # What is left looks like a word; that nobody else has it is what --k is for.
    assert len(kept) / len(names) < 0.04, kept[:20]


@pytest.mark.parametrize("key", ["boot", "/usr/bin/vim", "cron.service", "/usr/bin/python3 /usr/share/app/main.py", "editor"])
def test_keys_of_programs_are_kept(key):
    assert key_may_leave(key)


@pytest.mark.parametrize(
    "key",
    [
        "/usr/bin/vim of user 1000",
        "/usr/bin/python3 /home/anna/diary.py",
        "/usr/bin/python3 --at=/home/anna/x",
        "/home/anna/bin/x",
        "/tmp/installer",
        "session-4711.scope",
        "/usr/bin/job 123e4567-e89b-12d3-a456-426614174000",
    ],
)
def test_keys_that_say_more_are_not(key):
    assert not key_may_leave(key)


def test_nothing_private_is_in_the_table(tmp_path):
    wrong = [*PRIVATE, *BY_CHANCE, *made_by_chance(50)]
    entries = [entry(path, 1) for path in sorted({*wrong, *PUBLIC})]
    keys = ["/usr/bin/x", "/usr/bin/python3 /home/anna/diary.py"]
    fleet = collected(tmp_path, {"anna-laptop": [profile(key, entries) for key in keys]})
    found = [dict(zip(SCHEMA.names, row)) for row in rows(fleet)]
    assert {row["path"] for row in found} == {None, *PUBLIC}
    assert {row["key"] for row in found} == {"/usr/bin/x"}
    data = (tmp_path / "fleet.parquet").read_bytes()
    assert b"anna" not in data and b"laptop" not in data, "nor is the name of its file"


def test_no_name_takes_long():
    begin = time.monotonic()
    for part in ("a" * 4000 + "!", "aB" * 2000, "1a" * 2000, "A" * 4000 + "-", "1." * 2000 + "x", "-" * 4000, "0" * 4000 + "g"):
        may_leave("/srv/" + part, False)
        may_leave("/srv/x/" + "/".join(part), False)
    assert time.monotonic() - begin < 1
