"""Apply under a view by processes that are killed one after the other: the target has the rows of the view, each once.

The judge reads the target with SELECTs and computes the view in Python. A table without a key shows a row that was
written twice.
"""

import hmac
import os
import random
import signal
import sys
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import pytest

from millrace import faults
from millrace.consumer.turn.turn import AFTER_TURN
from millrace.consumer.turn.warm_up import warm
from millrace.consumer.write.target_transaction import (
    AFTER_LANE_COMMIT,
    AFTER_MARK,
    BEFORE_LANE_COMMIT,
    BEFORE_MARK,
)
from millrace.deploy.servers import DatabaseServer
from millrace.schemas.documents import ApplyTask
from millrace.schemas.gtid import Flavour
from millrace.schemas.view.view import Mask, MaskKind, TableRule, View
from tests.kit.apply.local import LocalRecords, apply_task, endpoint_of, ignore, started_at
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import RecordStream

POINTS = (AFTER_TURN, BEFORE_LANE_COMMIT, AFTER_LANE_COMMIT, BEFORE_MARK, AFTER_MARK)
KILLS = 25
CHANGES = 1_500
KEYS = 150
_names = count(1)

TARGET = (
    "CREATE TABLE {0}.people (shard VARCHAR(30), email CHAR(64) CHARACTER SET ascii, id BIGINT, own INT DEFAULT 7,"
    " score BIGINT, PRIMARY KEY (shard, id), UNIQUE KEY (score, shard))",
    "CREATE TABLE {0}.sack (body VARCHAR(40), n INT)",
)


@dataclass
class _Story:
    """A stream and the source's rows after it."""

    name: str
    seed: int
    stream: RecordStream = field(default_factory=RecordStream)
    people: dict[int, dict[str, object]] = field(default_factory=dict)
    bag: list[dict[str, object]] = field(default_factory=list)

    def __post_init__(self) -> None:
        chance = random.Random(self.seed)
        people = table(
            self.name, "people", integer("id"), text("mail"), integer("score"), integer("state")
        )
        bag = table(self.name, "bag", integer("n"), text("body"), key=())
        for number in range(CHANGES):
            key = chance.randrange(KEYS)
            before = self.people.get(key)
            after = {"id": key, "mail": f"m{number}", "score": key, "state": chance.randrange(10)}
            if before is None:
                self.people[key] = after
                self.stream.insert(people, after)
            elif chance.random() < 0.2:
                del self.people[key]
                self.stream.delete(people, before)
            else:
                self.people[key] = after
                self.stream.update(people, before, after)
            if chance.random() < 0.3:
                row = {"n": chance.randrange(6), "body": f"b{number % 50}"}
                self.bag.append(row)
                self.stream.insert(bag, row)
            if chance.random() < 0.3 and self.bag:
                place = chance.randrange(len(self.bag))
                old, new = self.bag[place], {"n": chance.randrange(6), "body": "moved"}
                self.bag[place] = new
                self.stream.update(bag, old, new)
            if chance.random() < 0.2:
                self.stream.commit()
        self.stream.commit()

    def task(self, house: str, secret: Path) -> ApplyTask:
        """The task with its view."""
        person = TableRule(
            f"{self.name}.people",
            f"{house}.people",
            where="state < 6",
            drop=("state",),
            rename=(("mail", "email"),),
            add=(("shard", "{database}"),),
            masks=(("email", Mask(MaskKind.HMAC, secret=f"file:{secret}")),),
        )
        sack = TableRule(f"{self.name}.bag", f"{house}.sack", where="n % 3 <> 1")
        return replace(apply_task(self.name), view=View((person, sack)))

    def expected(self) -> tuple[list[tuple[object, ...]], Counter[tuple[object, ...]]]:
        """The rows of both tables on the target."""
        people: list[tuple[object, ...]] = [
            (
                row["id"],
                hmac.new(b"salt", str(row["mail"]).encode(), "sha256").hexdigest(),
                row["score"],
                7,
            )
            for _, row in sorted(self.people.items())
            if int(str(row["state"])) < 6
        ]
        bag: Counter[tuple[object, ...]] = Counter(
            (row["n"], row["body"]) for row in self.bag if int(str(row["n"])) % 3 != 1
        )
        return people, bag


def _run(server: DatabaseServer, story: _Story, task: ApplyTask, fault: str, seed: int) -> int:
    """One process that applies to the end of the stream, or dies."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        chance, values = random.Random(seed), story.stream.values
        faults.arm(fault)
        with closing(started_at(endpoint_of(server), task)) as applier:
            first = 0
            while first < len(values):
                end = min(len(values), first + chance.choice([20, 60, 200]))
                if end > applier.mark.next_offset:
                    records = LocalRecords(
                        values[first:end],
                        first,
                        is_large=chance.random() < 0.8,
                        window_rows=chance.choice([7, 30, 90]),
                        executors=chance.choice([1, 1, 3]),
                    )
                    applier.process(records, ignore)
                first = end
    except BaseException:  # noqa: BLE001 - the child must not run the parent's code
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("flavour", Flavour)
def test_killed_processes_leave_each_row_of_the_view_once(
    request: pytest.FixtureRequest, flavour: Flavour, seed: int, tmp_path: Path
) -> None:
    """SIGKILL at every point of a turn, at any passage; the next process continues under the same view."""
    server: DatabaseServer = request.getfixturevalue(f"{flavour}_server")
    story = _Story(f"seen{next(_names)}", seed)
    house, chance = f"{story.name}_house", random.Random(seed)
    (secret := tmp_path / "salt").write_text("salt")
    server.execute(f"CREATE DATABASE {house}")
    for sql in TARGET:
        server.execute(sql.format(house))
    task = story.task(house, secret)
    warm()  # the forks have the kernels
    deaths = Counter[str]()
    for number in range(KILLS):
        point = POINTS[number % len(POINTS)]
        fault = f"{point}:kill@{chance.choice([1, 1, 2, 3])}"
        status = _run(server, story, task, fault, chance.randrange(1 << 30))
        assert status in (0, -signal.SIGKILL), (fault, status)
        deaths[point] += status != 0
    assert deaths.total() >= KILLS // 2, deaths
    assert _run(server, story, task, "", seed) == 0
    people, bag = story.expected()
    found = server.execute(f"SELECT id, email, score, own FROM {house}.people ORDER BY id")
    assert found == people
    assert Counter(server.execute(f"SELECT n, body FROM {house}.sack")) == bag
    server.execute(f"DROP DATABASE {house}")
