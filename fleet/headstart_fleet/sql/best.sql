-- The rule `best`: the profile of one machine, which has the most in common with the starts of all. Of two that cover
-- as much, the one that reads less is better, so the measure is Dice's: twice what both read, of what each reads.

-- name: candidates
-- Numbers of machines are random, so the least are a random sample.
SELECT image, key, machine
FROM (
    SELECT
        image, starts.key, machine,
        row_number() OVER (PARTITION BY image, starts.key ORDER BY machine) AS place
    FROM starts JOIN keys ON keys.key = starts.key
) AS ordered
WHERE place <= {candidates};

-- name: candidate_uses
SELECT candidates.image, candidates.key, candidates.machine, use, file
FROM fleet JOIN candidates ON candidates.machine = fleet.machine AND candidates.key = fleet.key
WHERE content <> 0;

-- name: scores
-- Of each kind of use: its blocks, and how many of them all machines have used, added up.
SELECT use, sum(segments.upto - segments.first) AS blocks, sum(votes * (segments.upto - segments.first)) AS shared
FROM pieces
    JOIN segments
        ON segments.file = pieces.file AND segments.first >= pieces.first AND segments.upto <= pieces.upto
WHERE pieces.file > 0 AND use IN (SELECT use FROM candidate_uses)
GROUP BY use;

-- name: all_blocks
SELECT key, sum(votes * (upto - first)) AS blocks
FROM files JOIN segments ON segments.file = files.file
GROUP BY key;

-- name: best
SELECT image, key, machine
FROM (
    SELECT
        image, candidate_uses.key, machine,
        row_number() OVER (
            PARTITION BY image, candidate_uses.key
            ORDER BY
                sum(coalesce(shared, 0))
                / (sum(coalesce(scores.blocks, 0)) * any_value(keys.machines)
                    + coalesce(any_value(all_blocks.blocks), 0) + 1) DESC,
                machine
        ) AS place
    FROM candidate_uses
        JOIN keys ON keys.key = candidate_uses.key
        LEFT JOIN scores ON scores.use = candidate_uses.use
        LEFT JOIN all_blocks ON all_blocks.key = candidate_uses.key
    GROUP BY image, candidate_uses.key, machine
) AS ordered
WHERE place = 1;

-- name: kept_files
SELECT best.image, voted.*, least(1.0, voted.machines / of_machines) AS share
FROM best
    JOIN candidate_uses
        ON candidate_uses.image = best.image
        AND candidate_uses.key = best.key
        AND candidate_uses.machine = best.machine
    JOIN voted ON voted.file = candidate_uses.file;

-- name: kept_ranges
SELECT
    best.image, segments.file, segments.first, segments.upto, segments.part,
    least(1.0, votes / of_machines) AS share
FROM best
    JOIN candidate_uses
        ON candidate_uses.image = best.image
        AND candidate_uses.key = best.key
        AND candidate_uses.machine = best.machine
    JOIN pieces ON pieces.use = candidate_uses.use
    JOIN segments
        ON segments.file = pieces.file AND segments.first >= pieces.first AND segments.upto <= pieces.upto
    JOIN voted ON voted.file = segments.file
WHERE pieces.file > 0;
