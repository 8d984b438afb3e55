"""Reads from a target server how its collations weigh characters, and makes folds of it (``drivers.mysql.collation``).

The server that compares the keys is the only one that knows: MariaDB has other weights under the name
``utf8mb4_0900_ai_ci`` than MySQL. One collation takes the server and this process about 0.2 s each, once per
process and server version. Weights are part of a server's index files, so a version never changes them.
"""

from collections.abc import Callable, Iterable, Mapping

from millrace.drivers.mysql.collation import (
    PAGE,
    PLANES,
    PROBE_LENGTH_MAX,
    Fold,
    has_fold,
    is_exact,
    is_tailored,
    make_fold,
    probes,
)
from millrace.drivers.mysql.connection import MySqlSession, text_of
from millrace.schemas.gtid import Flavour
from millrace.schemas.sql.quoting import charset_name

KNOWN_MAX = 64  # folds kept in this process; 64 of 150 KB are 10 MB
_POINTS = 64  # characters in one row of a result
_LOW, _HIGH = range(PAGE // _POINTS), range(256)
_SURROGATES = "(page.d BETWEEN 216 AND 223 AND plane.d = 0)"
_CELL = 8 * PROBE_LENGTH_MAX  # hexadecimal digits of UTF-32

_known: dict[tuple[str, str], Fold] = {}


def read_folds(
    connection: MySqlSession, collations: Iterable[tuple[str, str]]
) -> Mapping[str, Fold]:
    """The folds of these pairs (character set, collation). Without: those that have none or need none."""
    wanted = [
        (charset, collation)
        for charset, collation in sorted(set(collations))
        if has_fold(collation) and not is_exact(collation)
    ]
    if not wanted:
        return {}
    found = {}
    for charset, collation in wanted:
        place = (connection.version_text, collation)
        if place not in _known:
            while len(_known) >= KNOWN_MAX:
                _known.pop(next(iter(_known)), None)
            _known[place] = _read_fold(connection, charset, collation)
        found[collation] = _known[place]
    return found


def _read_fold(connection: MySqlSession, charset: str, collation: str) -> Fold:
    tailored = is_tailored(collation)
    # MariaDB joins the levels without a separator
    level = " LEVEL 1" if tailored and connection.flavour is Flavour.MARIADB else ""

    def weight(point: str) -> str:
        text = f"CONVERT({point} USING {charset_name(charset)})"
        return f"COALESCE(HEX(WEIGHT_STRING({text} COLLATE {charset_name(collation)}{level})), '')"

    found: dict[int, list[bytes]] = {}
    rows: dict[str, list[bytes]] = {}  # most rows are the same
    for first, text in read_rows(connection, weight, PLANES):
        found.setdefault(first - first % PAGE, []).extend(_weights(text, rows))
    sequences = read_sequences(connection, weight) if tailored else {}
    return make_fold(
        found,
        {text: bytes.fromhex(digits) for text, digits in sequences.items()},
        tailored=tailored,
    )


def read_rows(
    connection: MySqlSession, weight: Callable[[str], str], planes: Iterable[int]
) -> Iterable[tuple[int, str]]:
    """A character and the weights of the 64 characters from it on, with commas between them, in their order.

    ``weight`` gives the SQL for the weight of a text in UTF-32.
    """
    row = ",".join(
        weight(f"CHAR(plane.d*65536+page.d*{PAGE}+part.d*{_POINTS}+{at} USING utf32)")
        for at in range(_POINTS)
    )
    tables = f"{_digits(planes)} plane, {_digits(_HIGH)} page, {_digits(_LOW)} part"
    for plane, page, part, text in connection.query(
        f"SELECT plane.d, page.d, part.d, CONCAT_WS(',',{row}) FROM {tables}"
        f" WHERE NOT {_SURROGATES} ORDER BY plane.d, page.d, part.d"
    ):
        first = int(str(plane)) * 65536 + int(str(page)) * PAGE + int(str(part)) * _POINTS
        yield first, text_of(text)


def read_sequences(connection: MySqlSession, weight: Callable[[str], str]) -> Mapping[str, str]:
    """The weights of all ``probes``; see ``read_rows``."""
    texts = probes()
    cells = "".join(text.encode("utf-32-be").hex().ljust(_CELL) for text in texts)
    place = f"(high.d*64+low.d)*{_CELL * _POINTS}"
    row = ",".join(
        weight(
            f"CONVERT(UNHEX(TRIM(SUBSTRING(given.t, {place}+{at * _CELL + 1}, {_CELL}))) USING utf32)"
        )
        for at in range(_POINTS)
    )
    row_count = -(-len(texts) // _POINTS)
    found: list[str] = []
    for _, _, text in connection.query(
        f"SELECT high.d, low.d, CONCAT_WS(',',{row}) FROM (SELECT _latin1'{cells}' AS t) given,"
        f" {_digits(range(row_count // 64 + 1))} high, {_digits(range(64))} low"
        f" WHERE high.d*64+low.d < {row_count} ORDER BY high.d, low.d"
    ):
        found += text_of(text).split(",")
    return dict(zip(texts, found, strict=False))  # the last row is filled with empty texts


def _weights(row: str, known: dict[str, list[bytes]]) -> list[bytes]:
    if row not in known:
        known[row] = list(map(bytes.fromhex, row.split(",")))
    return known[row]


def _digits(numbers: Iterable[int]) -> str:
    """A derived table with one column ``d``."""
    return "(" + " UNION ALL ".join(f"SELECT {number} AS d" for number in numbers) + ")"
