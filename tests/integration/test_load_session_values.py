"""Loads of generated values that depended on the source's session: no row is lost and no value changes silently."""

from collections.abc import Iterator

import pytest

from millrace.deploy.servers import DatabaseServer
from millrace.errors import Fatal
from millrace.schemas.documents import LoadRules
from millrace.schemas.gtid import Flavour
from tests.fixtures.load import load_rig, source_of_one
from tests.fixtures.servers import Pool
from tests.kit.apply.loading import LoadRig
from tests.kit.binlog.session import session

pytestmark = pytest.mark.usefixtures("target_password")

NAME = "loaded_values"
RULES = LoadRules(from_primary=True)
BOTH = "(1, '2024-01-01 00:30:00'), (2, '2023-12-31 10:00:00')"
TABLES = {
    "d DATE AS (DATE(ts)) STORED": "MR-5080",
    "d DATE AS (DATE(ts)) VIRTUAL, UNIQUE KEY (d)": "MR-5081",
    "d DATE AS (DATE(ts)) STORED, UNIQUE KEY (d)": "MR-5081",
}
ON_MYSQL = {"UNIQUE KEY k ((DATE(ts)))": "MR-5081"}


@pytest.fixture
def rig(single_server: DatabaseServer, pool: Pool) -> Iterator[LoadRig]:
    """A source, and a target of its flavour."""
    with load_rig(pool, source_of_one(pool, single_server.flavour), NAME) as rig:
        yield rig


def _fill(rig: LoadRig, columns: str, zone: str) -> list[tuple[object, ...]]:
    with session(rig.source.primary) as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {NAME}.t")
        cursor.execute(f"CREATE TABLE {NAME}.t (id INT PRIMARY KEY, ts TIMESTAMP NULL, {columns})")
        cursor.execute(f"SET time_zone = '{zone}', sql_log_bin = 0")
        cursor.execute(f"INSERT INTO {NAME}.t (id, ts) VALUES {BOTH}")
    return rig.source.primary.execute(_question(columns))


def _question(columns: str) -> str:
    stored = ", d" if "STORED" in columns else ""
    return f"SELECT id, UNIX_TIMESTAMP(ts){stored} FROM {NAME}.t ORDER BY id"


def test_loaded_values_of_another_time_zone_stop(rig: LoadRig) -> None:
    """After the SQL of the fix the load ends, with the source's rows; rows of Millrace's own zone need none."""
    is_mysql = rig.source.flavour is Flavour.MYSQL
    for columns, code in (TABLES | (ON_MYSQL if is_mysql else {})).items():
        wanted = _fill(rig, columns, "+00:00")
        assert rig.load(rules=RULES) is not None
        assert rig.target.execute(_question(columns)) == wanted, columns
        rig.target.execute(f"DROP TABLE {NAME}.t")
        _forget(rig)
        wanted = _fill(rig, columns, "+09:00")
        with pytest.raises(Fatal) as caught:
            rig.load(rules=RULES)
        assert caught.value.code == code, columns
        fix = caught.value.fix
        rig.target.execute(fix[fix.index("ALTER TABLE") : fix.index("`. Then")])
        assert rig.load(rules=RULES) is not None
        assert rig.target.execute(_question(columns)) == wanted, columns
        rig.target.execute(f"DROP TABLE {NAME}.t")
        _forget(rig)


def _forget(rig: LoadRig) -> None:
    """The next load is a first one."""
    for table in ("load_table", "load_chunk", "load_stream"):
        rig.target.execute(f"DELETE FROM millrace.{table} WHERE task = %s", (NAME,))
