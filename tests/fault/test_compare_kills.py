"""`millrace compare` dies by SIGKILL at each commit of its state: the next one continues, or begins again."""

from contextlib import closing

import pytest

from millrace.consumer.compare import Comparison, Ends, Rules, State, Threads, compare_sets
from millrace.consumer.compare import stored as state
from millrace.deploy.servers import DatabaseServer
from tests.kit.apply.follower import following
from tests.kit.apply.local import endpoint_of
from tests.kit.forked import killed_at
from tests.kit.waiting import PATIENCE_S

CHUNKS = 3
# the point and its passage; whether a comparison has begun and not ended; the chunks that are left
KILLS = [
    (state.BEFORE_BEGIN, 1, False, CHUNKS),
    (state.AFTER_BEGIN, 1, True, CHUNKS),
    (state.BEFORE_CHUNK, 2, True, CHUNKS - 1),
    (state.AFTER_CHUNK, 2, True, CHUNKS - 2),
    (state.BEFORE_END, 1, True, 0),
    (state.AFTER_END, 1, False, CHUNKS),
]


@pytest.mark.parametrize(("point", "passage", "resumes", "left"), KILLS)
def test_killed_comparison_is_continued_where_it_was(
    mariadb_server: DatabaseServer,
    target_server: DatabaseServer,
    name: str,
    point: str,
    passage: int,
    resumes: bool,
    left: int,
) -> None:
    """Its lock ends with its session, and the counts are those of the whole table."""
    rows = ", ".join(f"({number})" for number in range(250))
    for server in (mariadb_server, target_server):
        server.execute(f"CREATE DATABASE IF NOT EXISTS {name}")
        server.execute("CREATE TABLE t (id INT PRIMARY KEY)", db=name)
        server.execute(f"INSERT INTO t VALUES {rows}", db=name)
    target_server.execute("DELETE FROM t WHERE id = 7", db=name)
    target = endpoint_of(target_server)
    ends = Ends(endpoint_of(mariadb_server), target, name, PATIENCE_S)
    seen: list[object] = []

    def run(*, resumes: bool) -> Comparison:
        with closing(State.begin(target, name, resumes=resumes)) as stored:
            rules = Rules(chunk_rows=100, pool=Threads(ends, 1), state=stored, seen=seen.append)
            return compare_sets(ends, lambda database, _: database == name, rules=rules)

    with following(mariadb_server, target_server, name):
        killed_at(f"{point}:kill@{passage}", lambda: run(resumes=False))
        begun = target_server.execute(
            f"SELECT ended IS NULL FROM millrace.compare_run WHERE task = '{name}'"
        )
        assert (begun == [(1,)]) == resumes
        found = run(resumes=resumes)
    assert (len(seen), found.rows, found.counts) == (left, 250, {f"{name}.t": 1})
    stored = f"SELECT last_ended = ended, differences, by_table FROM millrace.compare_run WHERE task = '{name}'"
    assert target_server.execute(stored) == [(1, 1, f'[["{name}.t", 1]]')]
    mariadb_server.execute(f"DROP DATABASE {name}")
