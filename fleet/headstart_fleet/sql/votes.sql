-- What the machines of a fleet have in common. The same text runs in DuckDB and in Spark (bench/spark.py): each part
-- between two names is one query, whose result has that name in the queries below it. `{pieces}` is the dialect's way
-- to make a row of each element of `ranges`, `{k}` the least machines that must have seen what is kept.

-- name: starts
-- Which machine has which key.
SELECT machine, image, key, page_size, timeline_us, waited_us FROM fleet WHERE content = 0;

-- name: machines
SELECT machine, min(image) AS image FROM starts GROUP BY machine;

-- name: keys
-- Of all machines, whatever their image.
SELECT key, count(*) AS machines FROM starts GROUP BY key HAVING count(*) >= {k};

-- name: uses
-- Equal uses of a file are counted first: there are far fewer kinds of them than rows.
SELECT
    use,
    any_value(key) AS key,
    any_value(content) AS content,
    any_value(unit) AS unit,
    any_value(path) AS path,
    any_value(size) AS size,
    any_value(package) AS package,
    any_value(version) AS version,
    any_value(need) AS need,
    any_value(stage) AS stage,
    any_value(ranges) AS ranges,
    count(*) AS machines,
    sum(first_use_us) AS first_use_us
FROM fleet
WHERE content <> 0
GROUP BY use;

-- name: files
-- The same, whatever of the file was needed. `file` tells a file of a key.
SELECT
    min(use) AS file,
    uses.key,
    content,
    any_value(unit) AS unit,
    any_value(path) AS path,
    any_value(size) AS size,
    any_value(package) AS package,
    any_value(version) AS version,
    max(need) AS need,
    max_by(stage, uses.machines) AS stage,
    sum(uses.machines) AS machines,
    sum(first_use_us) / sum(uses.machines) AS first_use_us
FROM uses JOIN keys ON keys.key = uses.key
GROUP BY uses.key, content
HAVING sum(uses.machines) >= {k};

-- name: varying
-- Files of no package that have another size on nearly each machine, as /etc/ld.so.cache: no content of them is seen
-- often enough, but the path is. The most frequent size stands for them, pages from the beginning for all.
SELECT
    -min(use) AS file,
    uses.key,
    path,
    max_by(size, uses.machines) AS size,
    max(need) AS need,
    max_by(stage, uses.machines) AS stage,
    sum(uses.machines) AS machines,
    any_value(keys.machines) AS of_machines,
    sum(first_use_us) / sum(uses.machines) AS first_use_us
FROM uses JOIN keys ON keys.key = uses.key
WHERE package IS NULL AND size IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM files WHERE files.key = uses.key AND files.path = uses.path)
GROUP BY uses.key, path
HAVING sum(uses.machines) >= {k};

-- name: owned
-- Which machine has which version of a package, or which file of no package: what one of its keys says holds for all.
SELECT DISTINCT machine, unit
FROM fleet
WHERE content <> 0 AND unit IN (SELECT unit FROM files);

-- name: image_units
SELECT image, unit, count(*) AS machines
FROM owned JOIN machines ON machines.machine = owned.machine
GROUP BY image, unit;

-- name: key_units
SELECT DISTINCT key, unit FROM files;

-- name: possible
-- How many machines that start a key could have used a file: those that have the file.
SELECT key_units.key, key_units.unit, count(*) AS machines
FROM owned
    JOIN key_units ON key_units.unit = owned.unit
    JOIN starts ON starts.machine = owned.machine AND starts.key = key_units.key
GROUP BY key_units.key, key_units.unit;

-- name: voted
SELECT
    file, files.key, content, files.unit, path, size, package, version, need, stage,
    files.machines, possible.machines AS of_machines, first_use_us
FROM files JOIN possible ON possible.key = files.key AND possible.unit = files.unit
UNION ALL
SELECT
    file, key, file AS content, file AS unit, path, size, NULL AS package, NULL AS version, need, stage,
    machines, of_machines, first_use_us
FROM varying;

-- name: pieces
-- START+BLOCKS+PART of all uses.
SELECT
    file,
    use,
    machines,
    CAST(split_part(piece, '+', 1) AS BIGINT) AS first,
    CAST(split_part(piece, '+', 1) AS BIGINT) + CAST(split_part(piece, '+', 2) AS BIGINT) AS upto,
    CAST(split_part(piece, '+', 3) AS BIGINT) AS part
FROM (
    SELECT file, use, uses.machines, {pieces} AS piece
    FROM uses JOIN files ON files.key = uses.key AND files.content = uses.content
    WHERE ranges <> ''
    UNION ALL
    SELECT file, use, uses.machines, {pieces} AS piece
    FROM uses JOIN varying ON varying.key = uses.key AND varying.path = uses.path
    WHERE ranges <> ''
) AS cut;

-- name: edges
SELECT file, edge, sum(votes) AS votes, sum(parts) AS parts
FROM (
    SELECT file, first AS edge, machines AS votes, machines * part AS parts FROM pieces
    UNION ALL
    SELECT file, upto AS edge, -machines AS votes, -machines * part AS parts FROM pieces
) AS both_ends
GROUP BY file, edge;

-- name: segments
-- Between two neighbouring edges all blocks have the same votes.
SELECT file, first, upto, votes, parts / votes AS part
FROM (
    SELECT
        file,
        edge AS first,
        lead(edge) OVER (PARTITION BY file ORDER BY edge) AS upto,
        sum(votes) OVER (PARTITION BY file ORDER BY edge ROWS UNBOUNDED PRECEDING) AS votes,
        sum(parts) OVER (PARTITION BY file ORDER BY edge ROWS UNBOUNDED PRECEDING) AS parts
    FROM edges
) AS summed
WHERE upto IS NOT NULL AND votes >= {k};

-- name: image_keys
SELECT
    image,
    starts.key,
    count(*) AS machines,
    mode(page_size) AS page_size,
    median(timeline_us) AS timeline_us,
    median(waited_us) AS waited_us
FROM starts JOIN keys ON keys.key = starts.key
GROUP BY image, starts.key;

-- name: chosen
-- A profile has each path once. Of several files at a path the image has the one that most of its machines have; the
-- votes for it are those of all machines of the fleet that have it.
SELECT image, key, file
FROM (
    SELECT
        image_keys.image,
        voted.key,
        file,
        row_number() OVER (
            PARTITION BY image_keys.image, voted.key, path
            ORDER BY coalesce(image_units.machines, 0) DESC, voted.machines DESC, content
        ) AS place
    FROM voted
        JOIN image_keys ON image_keys.key = voted.key
        LEFT JOIN image_units ON image_units.image = image_keys.image AND image_units.unit = voted.unit
    WHERE image_units.machines > 0 OR voted.file < 0
) AS ordered
WHERE place = 1;
