"""How good a merged profile is on machines that it has not seen.

The machines are divided into as many parts as there are folds. Each part is left out in turn, the others are merged,
and the result is held against what the starts of the machines left out have used.
"""

from dataclasses import dataclass

import duckdb

from headstart_fleet import queries
from headstart_fleet.tables import BLOCK, Refused


@dataclass
class Score:
    """Bytes of starts on machines that were left out."""

    used: int = 0
    hit: int = 0
    read: int = 0

    @property
    def recall(self) -> float:
        """Share of what was used that would have been read ahead."""
        return self.hit / self.used if self.used else 0.0

    @property
    def over_read(self) -> float:
        """What would have been read in vain, as a share of what was used."""
        return (self.read - self.hit) / self.used if self.used else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of recall and precision, by which rules are ranked."""
        return 2 * self.hit / (self.read + self.used) if self.used else 0.0

    def add(self, used: int, hit: int, read: int) -> None:
        self.used, self.hit, self.read = self.used + used, self.hit + hit, self.read + read


def divide(con: duckdb.DuckDBPyConnection, folds: int | None) -> int:
    """Makes the table `folds`: which machine is left out when. Without a number each is left out alone."""
    (count,) = con.execute("SELECT count(DISTINCT machine) FROM whole WHERE content = 0").fetchone()
    if count < 2:
        raise Refused(f"the fleet has {count} machines: two at least are needed, to leave one out")
    folds = min(folds or count, count)
    # Numbers of machines are random.
    con.execute(
        "CREATE OR REPLACE TEMP TABLE folds AS"
        f" SELECT machine, (row_number() OVER (ORDER BY machine) - 1) % {folds} AS fold"
        " FROM (SELECT DISTINCT machine FROM whole WHERE content = 0) AS all_machines"
    )
    return folds


def compare(
    con: duckdb.DuckDBPyConnection,
    *,
    folds: int | None,
    share: float,
    k: int,
    candidates: int,
    rules: tuple[str, ...] = queries.RULES,
) -> dict[str, dict[str, Score]]:
    """The scores of each rule by key. `""` is all keys together. The view `fleet` must be there."""
    con.execute("CREATE OR REPLACE TEMP TABLE whole AS SELECT * FROM fleet")
    scores = {rule: {"": Score()} for rule in rules}
    for fold in range(divide(con, folds)):
        of_fold = f"SELECT machine FROM folds WHERE fold = {fold}"
        con.execute(f"CREATE OR REPLACE TEMP VIEW fleet AS SELECT * FROM whole WHERE machine NOT IN ({of_fold})")
        con.execute(f"CREATE OR REPLACE TEMP TABLE held AS SELECT * FROM whole WHERE machine IN ({of_fold})")
        queries.run(con, "votes", k=k)
        for rule in rules:
            queries.keep(con, rule, share, candidates)
            queries.run(con, "held")
            for key, used, hit, read in con.execute("SELECT * FROM held_scores").fetchall():
                for name in ("", key):
                    score = scores[rule].setdefault(name, Score())
                    score.add(used * BLOCK, hit * BLOCK, read * BLOCK)
    con.execute("CREATE OR REPLACE TEMP VIEW fleet AS SELECT * FROM whole")
    return scores


def best_of(scores: dict[str, dict[str, Score]]) -> str:
    """The rule with the best mean of recall and precision."""
    return max(scores, key=lambda rule: scores[rule][""].f1)
