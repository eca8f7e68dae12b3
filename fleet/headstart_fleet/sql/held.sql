-- What a merged profile would read on the machines that were left out, and what they have used, in blocks.

-- name: held_starts
SELECT machine, key, image FROM held WHERE content = 0;

-- name: held_used
SELECT
    machine, key, path,
    CAST(split_part(piece, '+', 1) AS BIGINT) AS first,
    CAST(split_part(piece, '+', 1) AS BIGINT) + CAST(split_part(piece, '+', 2) AS BIGINT) AS upto
FROM (SELECT machine, key, path, {pieces} AS piece FROM held WHERE content <> 0 AND ranges <> '') AS cut;

-- name: held_paths
-- What the machine has at a path, by all of its keys.
SELECT machine, path, max_by(content, size) AS content, max(size) AS size
FROM held
WHERE content <> 0 AND size IS NOT NULL
GROUP BY machine, path;

-- name: held_units
SELECT DISTINCT machine, unit, package FROM held WHERE content <> 0 AND package IS NOT NULL;

-- name: held_packages
SELECT DISTINCT machine, package FROM held_units;

-- name: held_read
-- As `headstart profile import` plans it: the file that was learned, in full; of another one at the same path only
-- what is certain; nothing of a file that is not there. A file that the machine does not list is there if its package
-- is: in that version, or in another.
SELECT
    held_starts.machine, held_starts.key, kept_files.path, first,
    least(upto, coalesce(-(-held_paths.size // 4096), upto)) AS upto
FROM held_starts
    JOIN kept_files ON kept_files.image = held_starts.image AND kept_files.key = held_starts.key
    JOIN kept_ranges ON kept_ranges.image = kept_files.image AND kept_ranges.file = kept_files.file
    LEFT JOIN held_paths ON held_paths.machine = held_starts.machine AND held_paths.path = kept_files.path
    LEFT JOIN held_units ON held_units.machine = held_starts.machine AND held_units.unit = kept_files.unit
    LEFT JOIN held_packages
        ON held_packages.machine = held_starts.machine AND held_packages.package = kept_files.package
WHERE CASE
        WHEN held_paths.content = kept_files.content THEN TRUE
        WHEN held_paths.content IS NOT NULL THEN kept_ranges.share >= 0.9
        WHEN held_units.unit IS NOT NULL THEN TRUE
        WHEN held_packages.package IS NOT NULL THEN kept_ranges.share >= 0.9
        ELSE FALSE
    END
    AND first < coalesce(-(-held_paths.size // 4096), upto);

-- name: held_hit
SELECT
    held_read.machine, held_read.key,
    sum(least(held_read.upto, held_used.upto) - greatest(held_read.first, held_used.first)) AS blocks
FROM held_read
    JOIN held_used
        ON held_used.machine = held_read.machine AND held_used.key = held_read.key
        AND held_used.path = held_read.path
        AND held_used.first < held_read.upto AND held_read.first < held_used.upto
GROUP BY held_read.machine, held_read.key;

-- name: held_scores
SELECT
    held_starts.key,
    CAST(coalesce(sum(used.blocks), 0) AS BIGINT) AS used,
    CAST(coalesce(sum(held_hit.blocks), 0) AS BIGINT) AS hit,
    CAST(coalesce(sum(was_read.blocks), 0) AS BIGINT) AS was_read
FROM held_starts
    LEFT JOIN (SELECT machine, key, sum(upto - first) AS blocks FROM held_used GROUP BY machine, key) AS used
        ON used.machine = held_starts.machine AND used.key = held_starts.key
    LEFT JOIN held_hit ON held_hit.machine = held_starts.machine AND held_hit.key = held_starts.key
    LEFT JOIN (SELECT machine, key, sum(upto - first) AS blocks FROM held_read GROUP BY machine, key) AS was_read
        ON was_read.machine = held_starts.machine AND was_read.key = held_starts.key
GROUP BY held_starts.key;
