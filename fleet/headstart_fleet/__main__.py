"""`python3 -m headstart_fleet`: the same as `headstart-fleet`."""

import sys

from headstart_fleet.cli import main

sys.exit(main())
