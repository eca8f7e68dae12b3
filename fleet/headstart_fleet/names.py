"""Which names may leave a fleet's collection: none of people, and none that chance made.

`headstart profile export` leaves out what it knows to be private on the machine. The fleet's owner gets the files of
many machines, among them those of machines that exported more (`--with-homes`), so all is checked again here, without
knowing who the users are. A file that came with a package has a name that its package's archive publishes: only the
rules of places hold for it.
"""

import re
from functools import lru_cache

#: What people have, and what lies where everybody may leave files, or is made anew at each boot.
PLACES = (
    "/home/",
    "/root/",
    "/var/home/",
    "/export/home/",
    "/tmp/",
    "/var/tmp/",
    "/dev/shm/",
    "/run/",
    "/var/run/",
    "/proc/",
    "/media/",
    "/mnt/",
    "/var/mail/",
    "/var/spool/mail/",
    "/var/spool/cron/",
)
#: Directories that only homes have, and directories of homes in other places.
OF_HOMES = {"home", "homes", "users", ".cache", ".config", ".local", ".ssh", ".gnupg", ".mozilla", ".thunderbird"}
#: Names below it are those of packages, and of what their scripts make.
OF_PACKAGES = "/usr/"

UUID = re.compile(r"[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}")
#: What mkstemp, Python, GLib, editors, NFS, MySQL and cores name.
TEMPORARY = re.compile(
    r"^tmp[a-z0-9_]{6,}$|^\.goutputstream|^\.nfs|^#sql|^\.~lock|^\.#|\.sw[a-p]$|~$|^core\.[0-9]+$|\.(tmp|temp|lock|pid)$|^sess_"
)
WORDS = re.compile(r"[A-Za-z0-9]+")
#: Letters that follow digits, or digits that follow letters.
CHANGES = re.compile(r"(?<=[0-9])[A-Za-z]|(?<=[A-Za-z])[0-9]")
CASES = re.compile(r"(?<=[a-z])[A-Z]|(?<=[A-Z])[a-z]")
HEX = re.compile(r"[0-9a-fA-F]+")
#: Each repetition begins with a capital, so that no text takes longer than its length.
CAPITALS = re.compile(r"(?:[A-Z][a-z]+)+")
NUMBERED = re.compile(r"[a-z]*(?:[A-Z][a-z]+)*[0-9]{1,2}")
#: A directory of a version of a program.
VERSION = re.compile(r"[0-9]{1,2}")
#: Versions of programs, as of Python's compiled files and of shared libraries.
VERSIONS = re.compile(r"cpython-\d{2,3}|python-?\d[.\d]*|\.so\.[\d.]+$|(?<![\d.])\d{1,3}(\.\d{1,3})+(-\d{1,3})?(?![\d.])")


def is_by_chance(name: str) -> bool:
    """Whether a component of a path was made by chance: a hash, an id, a number of a process, a temporary name."""
    if UUID.search(name) or TEMPORARY.search(name):
        return True
    if name.isdigit():
        return True
    words = WORDS.findall(VERSIONS.sub("", name))
    last, joined = len(words) - 1, "".join(words)
    # Base 64 has separators among its characters.
    if len(joined) >= 20 and (len(CASES.findall(joined)) + len(CHANGES.findall(joined))) * 3 >= len(joined):
        return True
    return any(_is_random(word, last > 0, last > 0 and at == last) for at, word in enumerate(words))


def _is_random(word: str, is_of_several: bool, is_ending: bool) -> bool:
    if word.isdigit():
        # A number of a process, a user, a time.
        return len(word) >= (3 if is_of_several else 5)
    has_digit = any(one.isdigit() for one in word)
    if has_digit and len(word) >= 8 and HEX.fullmatch(word):
        return True
    if len(CHANGES.findall(word)) >= 3 or (has_digit and len(word) >= 20):
        return True
    # A name of several words has its capitals at their beginnings.
    cases = len(CASES.findall(word))
    if cases >= 4 and cases * 5 >= 2 * (len(word) - 1):
        return True
    mixed = any(one.isupper() for one in word) and any(one.islower() for one in word)
    # The six, eight or ten characters of mkstemp and mktemp.
    if is_ending and len(word) in (6, 8, 10) and (mixed or has_digit):
        return not CAPITALS.fullmatch(word)
    return mixed and has_digit and len(word) >= 6 and not NUMBERED.fullmatch(word)


@lru_cache(maxsize=1 << 16)
def may_leave(path: str, is_packaged: bool) -> bool:
    """Whether a path may be collected. `is_packaged`: its file came with a package."""
    if path.startswith(PLACES):
        return False
    parts = path.split("/")[1:]
    if not path.startswith(OF_PACKAGES) and not OF_HOMES.isdisjoint(parts):
        return False
    if path.startswith(OF_PACKAGES):
        # As of compilers and databases: /usr/lib/gcc/x86_64-linux-gnu/12.
        parts = [part for part in parts if not VERSION.fullmatch(part)]
    return is_packaged or not any(is_by_chance(part) for part in parts)


@lru_cache(maxsize=1 << 12)
def key_may_leave(key: str) -> bool:
    """Whether a key may be collected: no word of it says what may not."""
    if " of user " in key or any(place in key for place in PLACES if place != "/run/"):
        return False
    # The program itself has a public name, more often than not: what it is given to do is judged harder.
    first, *words = key.split(" ")
    if not may_leave(first, first.startswith("/usr/")) and first.startswith("/"):
        return False
    others = words if first.startswith("/") else [first, *words]
    return not any(is_by_chance(part) for word in others for part in word.split("/") if part)
