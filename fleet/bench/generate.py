#!/usr/bin/env python3
"""Makes a fleet of machines that never were, as Parquet, to see what merging one takes.

Each machine has 50 keys: a boot of 2,500 files, an office program of 900, and others of 60 to 260, as measured starts
have. Files come from 400 packages. Machines are updated at different times, so they have up to six versions of a
package; a new version changes six files of ten. Some packages are on some machines only, some files are used at some
starts only, large files are read in up to eight patterns. One file of ten is of no package, some of these have another
size on each machine, and each machine has private files for each key.
"""

import argparse
import os
import shutil
import sys
from pathlib import Path

from headstart_fleet import tables

#: Machines that one file has: some 60 MB.
MACHINES_A_FILE = 250
KEYS = 50
PACKAGES = 400
SHARED_PACKAGES = 40
VERSIONS = 6
PATTERNS = 8

# `r(...)` is a number from 0 to 1 that its arguments decide.
SETUP = f"""
CREATE MACRO h(a, b) AS (hash(a, b) >> 1)::BIGINT;
CREATE MACRO r(a, b) AS (hash(a, b) % 1000003) / 1000003.0;

CREATE TABLE key_names AS
SELECT i AS k, CASE i WHEN 0 THEN 'boot' WHEN 1 THEN '/usr/bin/soffice' ELSE '/usr/bin/program' || i END AS key,
    CASE i WHEN 0 THEN 2500 WHEN 1 THEN 900 ELSE 60 + (r('files', i) * 200)::INT END AS files
FROM range({KEYS}) AS keys(i);

-- The first 60 files of each key are shared ones.
CREATE TABLE key_files AS
SELECT k, key, j, CASE WHEN j < 60 THEN (r('shared' || k, j) * 300)::INT ELSE 1000 + k * 5000 + j END AS file
FROM key_names, range(2500) AS numbers(j)
WHERE j < files
QUALIFY row_number() OVER (PARTITION BY k, file ORDER BY j) = 1;

CREATE TABLE all_files AS
SELECT
    file,
    CASE
        WHEN r('owned', file) < 0.1 THEN NULL
        WHEN file < 1000 THEN file % {SHARED_PACKAGES}
        ELSE {SHARED_PACKAGES} + (file // 25) % {PACKAGES - SHARED_PACKAGES}
    END AS package,
    -- Small ones mostly, 190 KB on average.
    (1 + exp(r('size', file) * 8))::BIGINT * 512 AS size,
    CASE WHEN r('always', file) < 0.85 THEN 1.0 ELSE 0.2 + 0.75 * r('used', file) END AS used,
    r('owned', file) < 0.03 AS varies
FROM (SELECT DISTINCT file FROM key_files) AS distinct_files;

-- What a machine may have of a file: each version of its package, each pattern of reading.
CREATE TABLE catalogue AS
SELECT
    k, key, j, file, version, pattern,
    '/usr/lib/fleet/p' || coalesce(package, 999) || '/directory-' || file % 17 || '/file-of-some-length-' || file || '.so' AS path,
    size + CASE WHEN package IS NOT NULL THEN 512 * state ELSE 0 END AS bytes,
    'package' || package AS package_name,
    '1.' || version || '-1' AS package_version,
    j * 1500 AS first_use_us,
    CASE
        WHEN bytes < 65536 OR pattern = 0 THEN '0+' || (bytes + 4095) // 4096 || '+0'
        -- Of eight parts of a large file most are read in each pattern.
        ELSE coalesce(list_aggregate(
            list_transform(
                list_filter(range(0, 8), lambda i: i = 0 OR r('read' || file || pattern, i) < 0.7),
                lambda i: (i * (bytes // 32768))::VARCHAR || '+' || (bytes // 32768)::VARCHAR || '+' || (i % 3)::VARCHAR
            ), 'string_agg', ','), '0+1+0')
    END AS ranges
FROM (
    SELECT *, (SELECT count(*) FROM range(1, version + 1) AS v(i) WHERE r('changed' || i, file) < 0.6) AS state
    FROM key_files JOIN all_files USING (file), range({VERSIONS}) AS v(version), range({PATTERNS}) AS p(pattern)
    WHERE (package IS NOT NULL OR version = 0)
) AS made;

CREATE TABLE hashed AS
SELECT *,
    h(path, bytes || coalesce(package_name || package_version, '')) AS content,
    CASE WHEN package_name IS NULL THEN h(path, bytes || '') ELSE h(package_name, package_version) END AS unit,
    h(key, path || bytes || coalesce(package_version, '') || ranges) AS use,
    h(key, content) AS file_hash,
    h(key, path) AS name
FROM catalogue;
"""

MACHINES = """
CREATE OR REPLACE TABLE machines AS
SELECT h('machine', i) AS machine, i,
    CASE WHEN r('image', i) < 0.6 THEN 'web' WHEN r('image', i) < 0.9 THEN 'desktop' ELSE 'edge' END AS image,
    -- Days since the last update: thirty on average.
    -30 * ln(1 - r('age', i) * 0.99999) AS age
FROM range({first}, {last}) AS m(i);

CREATE OR REPLACE TABLE has AS
SELECT i, p AS package, least({versions} - 1, floor(age / (10 + 350 * r('period', p))))::INT AS version
FROM machines, range({packages}) AS all_packages(p)
WHERE p < {shared} OR r('optional', p) > 0.2 OR r('has' || p, i) < 0.1 + 0.8 * r('share', p);
"""

ROWS = """
SELECT
    machine, image, key, 4096::INT AS page_size, 6::INT AS runs, (2000000 + k * 10000)::BIGINT AS timeline_us,
    800000::BIGINT AS waited_us, 600000::BIGINT AS cpu_us, content, hashed.file_hash AS file, name, unit, use, path, bytes AS size, package_name AS package,
    CASE WHEN package_name IS NULL THEN NULL ELSE package_version END AS version, 3::TINYINT AS need,
    CASE WHEN k = 0 THEN 'stage-' || j // 500 ELSE 'start' END AS stage, 1.0::FLOAT AS weight,
    -- No two machines are as fast.
    (first_use_us * (0.5 + r('speed', i)))::BIGINT AS first_use_us, ranges
FROM (
    SELECT machines.*, key_files.k, key_files.j, file, coalesce(has.version, 0) AS version,
        -- Six starts of ten read a large file in the most frequent pattern.
        greatest(0, (r('pattern' || file, machines.i) * 20)::INT - 12) AS pattern
    FROM machines
        CROSS JOIN key_files JOIN all_files USING (file)
        LEFT JOIN has ON has.i = machines.i AND has.package = all_files.package
    WHERE (all_files.package IS NULL OR has.package IS NOT NULL) AND NOT varies AND r('use' || file || key, machines.i) < used
) AS used JOIN hashed USING (k, j, file, version, pattern)
UNION ALL BY NAME
-- Files that vary, and private ones.
SELECT
    machine, image, key, 4096::INT AS page_size, 6::INT AS runs, (2000000 + k * 10000)::BIGINT AS timeline_us,
    800000::BIGINT AS waited_us, 600000::BIGINT AS cpu_us, h(path, size) AS content, h(key, content) AS file,
    h(key, path) AS name, content AS unit, h(file, 0) AS use, path, size,
    NULL::VARCHAR AS package, NULL::VARCHAR AS version, 3::TINYINT AS need, 'start' AS stage, 1.0::FLOAT AS weight,
    5000::BIGINT AS first_use_us, '0+' || (size + 4095) // 4096 || '+0' AS ranges
FROM (
    SELECT machine, image, key, k, '/etc/varying-' || file AS path, 2000 + (r('varying' || file, i) * 30000)::BIGINT AS size
    FROM machines CROSS JOIN key_files JOIN all_files USING (file)
    WHERE varies
    UNION ALL
    SELECT machine, image, key, k, '/srv/private/' || machine || '/' || key_names.k || '-' || n AS path, 5000 AS size
    FROM machines, key_names, range(2) AS numbers(n)
) AS others
UNION ALL BY NAME
SELECT
    machine, image, key, 4096::INT AS page_size, 6::INT AS runs, (2000000 + k * 10000)::BIGINT AS timeline_us,
    800000::BIGINT AS waited_us, 600000::BIGINT AS cpu_us, 0::BIGINT AS content, 0::BIGINT AS file, 0::BIGINT AS name,
    0::BIGINT AS unit, h(key, 0) AS use, NULL::VARCHAR AS path,
    NULL::BIGINT AS size, NULL::VARCHAR AS package, NULL::VARCHAR AS version, 0::TINYINT AS need, 'start' AS stage,
    1.0::FLOAT AS weight, 0::BIGINT AS first_use_us, '' AS ranges
FROM machines, key_names
"""


def generate(machines: int, output: Path, memory: str = "6GB") -> int:
    """Writes the fleet into a directory; returns how many rows it has."""
    con = tables.connect(memory, os.cpu_count() or 1, output.parent)
    names = ", ".join(tables.SCHEMA.names)
    output.mkdir(parents=True)
    rows = 0
    try:
        con.execute(SETUP)
        for first in range(0, machines, MACHINES_A_FILE):
            last = min(first + MACHINES_A_FILE, machines)
            values = {"first": first, "last": last, "versions": VERSIONS, "packages": PACKAGES, "shared": SHARED_PACKAGES}
            con.execute(MACHINES.format(**values))
            # One machine after the other, as `collect` writes them.
            query = f"SELECT {names} FROM ({ROWS}) ORDER BY machine, key"
            place = output / f"{first:07}.parquet"
            (count,) = con.execute(f"COPY ({query}) TO '{place}' (FORMAT parquet, COMPRESSION zstd)").fetchone()
            rows += count
    finally:
        tables.close(con)
    return rows


def main() -> None:
    """`bench/generate.py MACHINES DIR`"""
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("machines", type=int)
    args.add_argument("output", type=Path, metavar="DIR")
    args.add_argument("--replace", action="store_true", help="remove DIR first, if it is there")
    options = args.parse_args()
    if options.replace:
        shutil.rmtree(options.output, ignore_errors=True)
    try:
        print(f"{options.output}: {generate(options.machines, options.output)} rows")
    except FileExistsError:
        sys.exit(f"{options.output} is there already: say --replace")


if __name__ == "__main__":
    main()
