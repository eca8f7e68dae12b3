-- What the machines of a fleet have in common. The same text runs in DuckDB and in Spark (bench/spark.py): each part
-- between two names is one query, whose result has that name in the queries below it. `{pieces}` is the dialect's way
-- to make a row of each element of `ranges`, `{k}` the least machines that must have seen what is kept.

-- name: starts
-- Which machine has which key.
SELECT machine, image, key, use AS key_id, page_size, timeline_us, waited_us, cpu_us FROM fleet WHERE content = 0;

-- name: machines
SELECT machine, min(image) AS image FROM starts GROUP BY machine;

-- name: keys
-- Of all machines, whatever their image.
SELECT key, min(key_id) AS key_id, count(*) AS machines FROM starts GROUP BY key HAVING count(*) >= {k};

-- name: counted
-- Equal uses of a file are counted first, by numbers alone: this is the one query that groups all rows. Times are
-- shares of a start's: slow machines count as much as fast ones, and none moves a mean by more than its part.
SELECT
    use, min(file) AS file, min(name) AS name, min(machine) AS machine, count(*) AS machines,
    sum(CASE WHEN first_use_us < timeline_us THEN first_use_us / timeline_us ELSE 1.0 END) AS first_uses
FROM fleet
WHERE content <> 0
GROUP BY use;

-- name: frequent
-- Files that enough machines use, whatever they need of them.
SELECT file, min(name) AS name FROM counted GROUP BY file HAVING sum(machines) >= {k};

-- name: frequent_names
-- Paths that enough machines use, of which no file is frequent: files that have another size on nearly each machine,
-- as /etc/ld.so.cache.
SELECT name
FROM counted
WHERE name NOT IN (SELECT name FROM frequent)
GROUP BY name
HAVING sum(machines) >= {k};

-- name: uses
-- The kinds of uses that remain, with what one of the machines says of each.
SELECT
    fleet.use, fleet.file, fleet.name, key, content, unit, path, size, package, version, need, stage, ranges,
    counted.machines, counted.first_uses
FROM fleet JOIN counted ON counted.use = fleet.use AND counted.machine = fleet.machine
WHERE counted.file IN (SELECT file FROM frequent) OR counted.name IN (SELECT name FROM frequent_names);

-- name: files
SELECT
    file,
    uses.key,
    any_value(key_id) AS key_id,
    any_value(content) AS content,
    any_value(unit) AS unit,
    any_value(path) AS path,
    any_value(size) AS size,
    any_value(package) AS package,
    any_value(version) AS version,
    max(need) AS need,
    max_by(stage, uses.machines) AS stage,
    sum(uses.machines) AS machines,
    sum(first_uses) / sum(uses.machines) AS first_use
FROM uses JOIN keys ON keys.key = uses.key
WHERE file IN (SELECT file FROM frequent)
GROUP BY file, uses.key;

-- name: varying
-- The largest size stands for all, and pages are counted from the beginning of each. Packages' files do not vary.
SELECT
    -name AS file,
    uses.key,
    any_value(path) AS path,
    max(size) AS size,
    max(need) AS need,
    max_by(stage, uses.machines) AS stage,
    sum(uses.machines) AS machines,
    any_value(keys.machines) AS of_machines,
    sum(first_uses) / sum(uses.machines) AS first_use
FROM uses JOIN keys ON keys.key = uses.key
WHERE name IN (SELECT name FROM frequent_names) AND package IS NULL AND size IS NOT NULL
GROUP BY name, uses.key
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
SELECT DISTINCT key_id, unit FROM files;

-- name: possible
-- How many machines that start a key could have used a file: those that have the file.
SELECT key_units.key_id, key_units.unit, count(*) AS machines
FROM owned
    JOIN key_units ON key_units.unit = owned.unit
    JOIN starts ON starts.machine = owned.machine AND starts.key_id = key_units.key_id
GROUP BY key_units.key_id, key_units.unit;

-- name: voted
SELECT
    file, files.key, content, files.unit, path, size, package, version, need, stage,
    files.machines, possible.machines AS of_machines, first_use
FROM files JOIN possible ON possible.key_id = files.key_id AND possible.unit = files.unit
UNION ALL
SELECT
    file, key, file AS content, file AS unit, path, size, NULL AS package, NULL AS version, need, stage,
    machines, of_machines, first_use
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
    SELECT uses.file, use, uses.machines, {pieces} AS piece
    FROM uses JOIN files ON files.file = uses.file
    WHERE ranges <> ''
    UNION ALL
    SELECT varying.file, use, uses.machines, {pieces} AS piece
    FROM uses JOIN varying ON varying.file = -uses.name
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
    median(waited_us) AS waited_us,
    median(cpu_us) AS cpu_us
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
