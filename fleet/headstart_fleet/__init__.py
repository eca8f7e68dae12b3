"""Profiles of many machines become one.

`collect` reads exported profiles into Parquet, `merge` makes one file of profiles of them, `compare` says how good
that is on machines that it has not seen, `report` shows what it brought. `headstart fleet` executes this program.
"""
