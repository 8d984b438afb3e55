"""Sessions on a real target are replaced between turns: a new password and a lost right take effect."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from millrace.consumer.target import sessions
from millrace.consumer.target.fence import take_turn
from millrace.consumer.target.progress import check_fence
from millrace.consumer.target.sessions import Sessions
from millrace.consumer.turn import driver
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import Endpoint
from millrace.errors import Fatal
from tests.kit.apply.local import LocalRecords, apply_task, endpoint_of, ignore, started_at
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream

NAME = "kept_sessions"
USER, OLD, NEW = "rotated", "old-secret", "new-secret"
T = table(NAME, "t", integer("id"))


@pytest.fixture
def endpoint(mariadb_server: DatabaseServer) -> Iterator[Endpoint]:
    """A separate account, and a table."""
    mariadb_server.execute(f"CREATE USER {USER} IDENTIFIED BY '{OLD}'")
    mariadb_server.execute(f"GRANT ALL ON *.* TO {USER}")
    mariadb_server.execute(f"CREATE DATABASE {NAME}")
    mariadb_server.execute("CREATE TABLE t (id INT PRIMARY KEY)", db=NAME)
    yield replace(endpoint_of(mariadb_server), user=USER, password=OLD)
    mariadb_server.execute(f"DROP DATABASE {NAME}")
    mariadb_server.execute(f"DROP USER {USER}")


def _row(stream: RecordStream, number: int) -> LocalRecords:
    """A micro-batch of one source transaction."""
    first = len(stream.values)
    stream.insert(T, {"id": number})
    stream.commit()
    return LocalRecords(stream.values[first:], first)


def test_old_session_is_replaced_between_turns_only(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a session that works; never within a turn, whose target transaction may be open."""
    applier = started_at(endpoint, apply_task(NAME))
    before = Sessions(endpoint, applier.owner)
    young = before.for_lane()
    owner = take_turn(before.for_lane(is_checked=True), applier.owner)
    now = before.of(owner)
    assert now.for_lane().id == young.id
    monkeypatch.setattr(sessions, "SESSION_AGE_S", 0.0)
    open_ = now.for_lane()
    check_fence(open_, owner)
    assert now.for_lane() is open_
    open_.commit()
    later = replace(owner, run=owner.run + 1)
    assert now.of(later).for_lane().id != young.id
    assert not young.is_open
    now.close()
    applier.close()


@pytest.mark.parametrize("is_known", [True, False])
def test_rotated_password_takes_effect_in_a_running_task(
    endpoint: Endpoint,
    mariadb_server: DatabaseServer,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_known: bool,
) -> None:
    """With the new secret in its place the task continues; without it the next turn is refused, and writes nothing."""
    stream, password = RecordStream(), [OLD]
    applier = started_at(endpoint, apply_task(f"{NAME}-{is_known}"))
    applier.renewed = lambda now: replace(now, password=password[0])
    applier.process(_row(stream, 1), ignore)
    mariadb_server.execute(f"SET PASSWORD FOR {USER} = PASSWORD('{NEW}')")
    applier.process(_row(stream, 2), ignore)  # its sessions are young
    monkeypatch.setattr(sessions, "SESSION_AGE_S", 0.0)
    monkeypatch.setattr(driver, "SESSION_AGE_S", 0.0)
    third = _row(stream, 3)
    if is_known:
        password[0] = NEW
        applier.process(third, ignore)
    else:
        with pytest.raises(Fatal) as caught:
            applier.process(third, ignore)
        assert caught.value.code == "MR-5002"
    applier.close()
    found = mariadb_server.execute(f"SELECT COUNT(*) FROM {NAME}.t")
    assert found == [(3 if is_known else 2,)]


def test_lost_right_stops_the_task_at_its_next_session(
    endpoint: Endpoint, mariadb_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may apply a revoked right only to new sessions."""
    stream = RecordStream()
    applier = started_at(endpoint, apply_task(f"{NAME}-right"))
    applier.process(_row(stream, 1), ignore)
    mariadb_server.execute(f"REVOKE ALL ON *.* FROM {USER}")
    monkeypatch.setattr(sessions, "SESSION_AGE_S", 0.0)
    with pytest.raises(Fatal) as caught:
        applier.process(_row(stream, 2), ignore)
    assert caught.value.code == "MR-5007"
    applier.close()
    assert mariadb_server.execute(f"SELECT COUNT(*) FROM {NAME}.t") == [(1,)]
