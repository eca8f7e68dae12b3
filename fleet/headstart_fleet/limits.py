"""The limits of headstart-profiles(5) and headstart-format(5), and this program's own, each with its reason.

The formats' limits are those of `crates/model/src/limits.rs`; `tests/test_profiles.py` compares them.
"""

KIB = 1 << 10
MIB = 1 << 20

# Of the formats.
FILE = 16 * MIB
SECTIONS = 64
PATH = 4095
KEY = 4096
STAGES = 256
STAGE_NAME = 255
SET_ENTRIES = 32 * KIB
RANGES = 128 * KIB
TAIL_RANGES = 16 * KIB
TOUCH_RANGES = 192 * KIB
SET_ENTRY_BYTES = 4 * MIB
PROFILES = 512
PACKAGES = 8 * KIB
PACKAGE_TEXT = 255
PKGS = MIB
SET_FILE = 5 * MIB
KEYS = 9 * MIB

# Of one file: TAIL_PAGES of `crates/model/src/profile.rs`.
TAIL_PAGES = 64

# This program's own.
#: Files of profiles that one collection reads: one for each machine of the largest fleet that was planned for.
MACHINES = 1_000_000
#: Bytes of a document of `headstart status --json`: 512 keys with 200 outcomes of 600 bytes each have 61 MB.
STATUS = 64 * MIB
#: Bytes of the name of an image: as of a file name.
IMAGE = 255
