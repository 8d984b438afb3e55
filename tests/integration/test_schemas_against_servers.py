"""``schemas`` compared with servers: structure, collations, conversions, GTID algebra."""

import random
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from millrace.deploy.servers import DatabaseServer
from millrace.schemas.gtid import Flavour, Gtid, GtidSet
from millrace.schemas.gtid.binary import decode_previous
from millrace.schemas.table.charset import TABLE_CHARSETS, characters, decode_text
from millrace.schemas.table.collation_ids import CHARSET_BY_COLLATION_ID, character_bytes_max
from millrace.schemas.table.structure import TableSchema
from millrace.schemas.table.table_map import parse_table_map
from millrace.schemas.table.type_text import type_text

pytestmark = pytest.mark.both_flavours

_TABLE_MAP = 19
_PREVIOUS = {Flavour.MYSQL: 35, Flavour.MARIADB: 163}

_COLUMNS = """
    c01 TINYINT NOT NULL, c02 TINYINT UNSIGNED, c03 SMALLINT, c04 SMALLINT UNSIGNED, c05 MEDIUMINT,
    c06 MEDIUMINT UNSIGNED,
    c07 INT, c08 INT UNSIGNED, c09 BIGINT, c10 BIGINT UNSIGNED, c11 DECIMAL(65,30), c12 DECIMAL(5,0) UNSIGNED,
    c13 FLOAT, c14 DOUBLE, c15 BIT(1), c16 BIT(64), c17 YEAR, c18 DATE, c19 TIME, c20 TIME(6), c21 DATETIME(1),
    c22 DATETIME,
    c23 TIMESTAMP(3) NULL, c24 TIMESTAMP NULL, c25 CHAR(1), c26 CHAR(255), c27 CHAR(200) CHARACTER SET utf32,
    c28 VARCHAR(64) CHARACTER SET latin1, c29 VARCHAR(63) CHARACTER SET utf8mb4, c30 VARCHAR(300) CHARACTER SET gbk,
    c31 TINYTEXT, c32 TEXT CHARACTER SET ucs2, c33 MEDIUMTEXT, c34 LONGTEXT, c35 BINARY(1), c36 BINARY(255),
    c37 VARBINARY(255), c38 VARBINARY(256), c39 TINYBLOB, c40 BLOB, c41 MEDIUMBLOB, c42 LONGBLOB,
    c43 GEOMETRY, c44 POINT, c45 LINESTRING, c46 POLYGON, c47 MULTIPOINT, c48 MULTILINESTRING, c49 MULTIPOLYGON,
    c50 ENUM('a','b'), c51 SET('x','y') CHARACTER SET sjis, `2 odd-näme` INT,
    PRIMARY KEY (c01)"""
_OWN_COLUMNS = {
    Flavour.MYSQL: "c60 JSON, c61 VECTOR(3), c62 VARCHAR(9) INVISIBLE,",
    Flavour.MARIADB: "c60 VARCHAR(9) COMPRESSED, c61 TEXT COMPRESSED, c62 VARBINARY(9) COMPRESSED,",
}


def events(server: DatabaseServer, code: int) -> Iterator[bytes]:
    """Bodies of all events of one type in all binlog files, without header and checksum."""
    for path in sorted(Path(server.binlog_dir).glob("mysql-bin.[0-9]*")):
        content, at = path.read_bytes(), 4
        while at + 19 <= len(content):
            size = int.from_bytes(content[at + 9 : at + 13], "little")
            if content[at + 4] == code:
                yield content[at + 19 : at + size - 4]
            at += size


def logged_table(server: DatabaseServer, database: str) -> TableSchema:
    """The last table map of this database."""
    tables = (
        parse_table_map(body, flavour=server.flavour)[1] for body in events(server, _TABLE_MAP)
    )
    return [table for table in tables if table.database == database][-1]


def test_table_map_agrees_with_information_schema(target_server: DatabaseServer) -> None:
    """Types, NULLs, character sets, labels and keys of all column types agree."""
    server = target_server
    server.execute("DROP DATABASE IF EXISTS oracle_types")
    server.execute("CREATE DATABASE oracle_types CHARACTER SET utf8mb4")
    own = _OWN_COLUMNS[server.flavour]
    server.execute(f"CREATE TABLE oracle_types.t ({own}{_COLUMNS})")
    server.execute("INSERT INTO oracle_types.t (c01) VALUES (1)")
    table = logged_table(server, "oracle_types")
    expected = server.execute(
        "SELECT column_name, column_type, is_nullable = 'YES', character_set_name, data_type"
        " FROM information_schema.columns WHERE table_schema = 'oracle_types' ORDER BY ordinal_position"
    )
    assert [column.name for column in table.columns] == [str(row[0]) for row in expected]
    for column, (_, column_type, nullable, charset, data_type) in zip(
        table.columns, expected, strict=True
    ):
        text = (
            str(column_type).split("/*")[0].split("(")[0]
            if column.type.labels
            else str(column_type)
        )
        text = text.split(" /*")[0].lower()
        text = (
            text.replace(" compressed", "") + " compressed" if column.type.is_compressed else text
        )
        text = {"year(4)": "year"}.get(text, text.replace("geomcollection", "geometrycollection"))
        if data_type in ("tinyint", "smallint", "mediumint", "int", "bigint"):
            text = f"{data_type}{' unsigned' if 'unsigned' in text else ''}"  # MariaDB prints display widths
        assert type_text(column.type) == text
        assert column.nullable == bool(nullable)
        assert (column.type.text.charset if column.type.is_text and column.type.text else None) in (
            charset,
            None,
        )
        assert not (charset and column.type.text is None)
    assert [table.columns[index].name for index in table.primary_key] == ["c01"]
    labels = {column.name: column.type.labels for column in table.columns if column.type.labels}
    assert labels == {"c50": ("a", "b"), "c51": ("x", "y")}
    assert [c.name for c in table.columns if not c.is_visible] == ["c62"] * (
        server.flavour is Flavour.MYSQL
    )


def test_every_collation_of_the_server_is_known(target_server: DatabaseServer) -> None:
    """Each with its character set, and the character set with its character width."""
    table, name = (
        ("collations", "character_set_name")
        if target_server.flavour is Flavour.MYSQL
        else ("collation_character_set_applicability", "character_set_name")
    )
    expected = target_server.execute(
        f"SELECT id, {name} FROM information_schema.{table} WHERE id IS NOT NULL"
    )
    assert len(expected) > 250
    assert [
        row for row in expected if CHARSET_BY_COLLATION_ID.get(int(str(row[0]))) != row[1]
    ] == []
    for charset, maxlen in target_server.execute(
        "SELECT character_set_name, maxlen FROM information_schema.character_sets"
    ):
        assert character_bytes_max(str(charset)) == maxlen


def fill(server: DatabaseServer, table: str, codes: list[bytes]) -> None:
    """A table with a column ``b`` that holds these bytes."""
    server.execute("CREATE DATABASE IF NOT EXISTS oracle_codes")
    server.execute(f"DROP TABLE IF EXISTS oracle_codes.{table}")
    server.execute(f"CREATE TABLE oracle_codes.{table} (b VARBINARY(4))")
    for at in range(0, len(codes), 8192):
        values = ",".join(f"(x'{code.hex()}')" for code in codes[at : at + 8192])
        server.execute(f"INSERT INTO oracle_codes.{table} VALUES {values}")


def test_every_character_code_converts_as_on_the_server(target_server: DatabaseServer) -> None:
    """For every character set with a table: the server's text of each code that it converts back, otherwise none."""
    server = target_server
    one = [bytes([code]) for code in range(256)]
    two = [bytes([lead, last]) for lead in range(0x80, 256) for last in range(256)]
    three = [bytes([0x8F, a, b]) for a in range(0xA0, 256) for b in range(0xA0, 256)]
    fill(server, "codes", one + two + three)
    longest = {"ujis": 3, "eucjpms": 3, "gb18030": 2}
    present = server.execute("SELECT character_set_name FROM information_schema.character_sets")
    missing = [charset for charset in TABLE_CHARSETS if (charset,) not in present]
    assert missing == (["gb18030"] if server.flavour is Flavour.MARIADB else [])
    for charset in set(TABLE_CHARSETS) - set(missing):
        text = f"CONVERT(CONVERT(b USING {charset}) USING utf8mb4)"
        back = f"CAST(CONVERT({text} USING {charset}) AS BINARY)"
        same = f"CAST(CONVERT(b USING {charset}) AS BINARY)"
        width = longest.get(charset, character_bytes_max(charset))
        rows = server.execute(
            f"SELECT b, {text} FROM oracle_codes.codes WHERE LENGTH(b) <= {width} AND {same} = b AND {back} = b"
        )
        expected = {code: text for code, text in rows if len(str(text)) == 1 and text != "\ufffd"}
        assert expected == characters(charset), charset


def test_long_gb18030_codes_convert_as_on_the_server(mysql_server: DatabaseServer) -> None:
    """The basic plane and some other characters, from the server's bytes."""
    points = [*range(0x80, 0xD800), *range(0xE000, 0x10000), *range(0x10000, 0x110000, 9973)]
    fill(mysql_server, "points", [point.to_bytes(4, "big") for point in points])
    for point, code in mysql_server.execute(
        "SELECT b, CAST(CONVERT(CONVERT(b USING utf32) USING gb18030) AS BINARY) FROM oracle_codes.points"
    ):
        assert isinstance(point, bytes)
        assert isinstance(code, bytes)
        assert decode_text("gb18030", code) == chr(int.from_bytes(point, "big"))


def test_gtid_sets_agree_with_the_servers_functions(mysql_server: DatabaseServer) -> None:
    """Subset and difference of random sets with tags; the server normalizes texts in the same way."""
    chance = random.Random(7)

    def some() -> GtidSet:
        return GtidSet.of(
            Gtid(
                UUID(int=chance.choice([5, 6])),
                chance.randint(1, 12),
                chance.choice(["", "", "blue"]),
            )
            for _ in range(chance.randint(0, 12))
        )

    for _ in range(60):
        left, right = some(), some()
        right = right if chance.random() < 0.6 else left | right
        ((subset, minus),) = mysql_server.execute(
            "SELECT GTID_SUBSET(%s, %s), GTID_SUBTRACT(%s, %s)",
            (str(left), str(right), str(left), str(right)),
        )
        assert (left <= right) == bool(subset)
        assert str(left - right) == str(minus).replace("\n", "")


def test_gtid_position_in_a_file_head_matches_the_server(target_server: DatabaseServer) -> None:
    """PREVIOUS_GTIDS and GTID_LIST of a new file equal the position before it."""
    server = target_server
    server.execute("CREATE DATABASE IF NOT EXISTS oracle_position")
    position = str(server.execute(server.dialect.position_query())[0][0]).replace("\n", "")
    server.execute("FLUSH BINARY LOGS")
    heads = [
        decode_previous(body, flavour=server.flavour)
        for body in events(server, _PREVIOUS[server.flavour])
    ]
    assert str(heads[-1]) == position
    assert heads[-1].includes(heads[0])
