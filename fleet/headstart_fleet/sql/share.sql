-- The rules `votes` and `intersection`: kept is what at least `{share}` of the machines have used that have the file.

-- name: kept_files
SELECT image, voted.*, least(1.0, voted.machines / of_machines) AS share
FROM chosen JOIN voted ON voted.file = chosen.file
WHERE voted.machines >= {share} * of_machines;

-- name: kept_ranges
SELECT image, kept_files.file, first, upto, part, least(1.0, votes / of_machines) AS share
FROM kept_files JOIN segments ON segments.file = kept_files.file
WHERE votes >= {share} * of_machines;
