"""The statements that make the tables of the scene, and how SELECT shows their rows as texts."""

from collections.abc import Iterator
from random import Random

SOURCE = "shop"
ORDERS, ODD, ALTERED = "orders", "odd", "altered"
BIG_INSERTS, BIG_UPDATES = 240_000, 60_000
ORDERS_SELECT = (
    "SELECT id, customer, price, paid, created, note, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', created)"
    " FROM shop.orders"
)
CREATE_ORDERS = """CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, customer VARCHAR(80) NULL,
    price DECIMAL(12,2) NOT NULL, paid TINYINT NOT NULL, created DATETIME(6) NULL, note TEXT NULL)
    CHARACTER SET utf8mb4"""
_NOTES = (
    None,
    "",
    "plain",
    "two\nlines and a tab\t.",
    'quotes " and \' and `, a backslash \\, {"json": [1]}',
    "emoji 😀 ü 漢字 \u2028 \u0001",
    "NULL",
    "long " * 300,
)
_CREATED = (None, "2024-02-29 12:00:00.123456", "1970-01-01 00:00:00", "2037-12-31 23:59:59.999999")
_CHANGES = 1500
_ODD_COLUMNS = {
    "bu": ("BIGINT UNSIGNED", "18446744073709551615"),
    "bi": ("BIGINT", "-9223372036854775808"),
    "d": ("DECIMAL(65,30)", "-12345678901234567890123456789012345.000000000000000000000000000001"),
    "f": ("FLOAT", "0.1"),
    "do": ("DOUBLE", "1.7976931348623157e308"),
    "bt": ("BIT(9)", "b'100000001'"),
    "da": ("DATE", "'0000-00-00'"),
    "ti": ("TIME(6)", "'-838:59:58.999999'"),
    "ts": ("TIMESTAMP(3) NULL", "'2024-10-27 00:30:00.125'"),
    "y": ("YEAR", "2155"),
    "la": ("VARCHAR(20) CHARACTER SET latin1", "'é€'"),
    "vb": ("VARBINARY(20)", "x'00FF'"),
    "e": ("ENUM('a','ü')", "'ü'"),
    "s": ("SET('x','y')", "'x,y'"),
    "j": ("JSON", "'{\"a\": [1, null, 1.5]}'"),
}

ODD_VALUES = {  # of the columns that all formats show in the same way
    "bi": "-9223372036854775808",
    "d": "-12345678901234567890123456789012345.000000000000000000000000000001",
    "la": "é€",
    "e": "ü",
    "s": "x,y",
    "y": "2155",
}


def orders_script() -> Iterator[str]:
    """Inserts, updates, deletes and changed keys, one or several rows a statement."""
    random = Random(26)
    ids: list[int] = []
    yield CREATE_ORDERS
    for number in range(1, _CHANGES):
        choice = random.random()
        if choice < 0.4 or len(ids) < 10:
            ids.append(number)
            yield f"INSERT INTO shop.orders VALUES ({number}, {_values(random)})"
            continue
        row = random.choice(ids)
        if choice < 0.7:
            customer, price, paid, created, note = _columns(random)
            yield (
                f"UPDATE shop.orders SET customer = {customer}, price = {price}, paid = {paid},"
                f" created = {created}, note = {note} WHERE id = {row}"
            )
        elif choice < 0.8:
            ids[ids.index(row)] = -number
            yield f"UPDATE shop.orders SET id = {-number} WHERE id = {row}"
        elif choice < 0.9:
            ids.remove(row)
            yield f"DELETE FROM shop.orders WHERE id = {row}"
        else:
            yield f"UPDATE shop.orders SET paid = paid + 1 WHERE id BETWEEN {row - 5} AND {row}"


def altered_script() -> Iterator[str]:
    """A table that ends with the rows of ``orders``. A third of its records is written while it has one more column."""
    yield "CREATE TABLE shop.altered LIKE shop.orders"
    yield (
        "INSERT INTO shop.altered SELECT id, customer, price + 1, paid, created, note FROM shop.orders"
    )
    yield "ALTER TABLE shop.altered ADD extra INT NULL AFTER customer"
    yield "UPDATE shop.altered SET extra = 7"
    yield "INSERT INTO shop.altered (id, price, paid, extra) VALUES (0, 1.00, 1, NULL)"
    yield "ALTER TABLE shop.altered DROP COLUMN extra"
    yield "UPDATE shop.altered SET price = price - 1"
    yield "DELETE FROM shop.altered WHERE id = 0"


def odd_script() -> Iterator[str]:
    """A table of types that formats and clients treat differently."""
    columns = ", ".join(f"`{name}` {type_}" for name, (type_, _) in _ODD_COLUMNS.items())
    values = ", ".join(value for _, value in _ODD_COLUMNS.values())
    nulls = ", ".join("NULL" for _ in _ODD_COLUMNS)
    yield f"CREATE TABLE shop.odd (id INT PRIMARY KEY, {columns}) CHARACTER SET utf8mb4"
    yield f"INSERT INTO shop.odd VALUES (1, {values}), (2, {nulls}), (3, {values})"
    yield "DELETE FROM shop.odd WHERE id = 3"


def big_script() -> Iterator[str]:
    """300,000 changes of ``orders``, of which 60,000 are updates."""
    digits = " UNION ALL ".join(f"SELECT {digit} AS d" for digit in range(10))
    joined = " JOIN ".join(f"({digits}) AS d{place}" for place in range(6))
    number = " + ".join(f"{10**place} * d{place}.d" for place in range(6))
    yield CREATE_ORDERS
    yield (
        "INSERT INTO shop.orders SELECT n, CONCAT('customer ', n), n / 100, 0,"
        " TIMESTAMPADD(SECOND, n, '2024-01-01'), CONCAT('note of order ', n, ' with ü')"
        f" FROM (SELECT {number} AS n FROM {joined}) AS numbers WHERE n < {BIG_INSERTS}"
    )
    yield f"UPDATE shop.orders SET paid = 1 WHERE id < {BIG_UPDATES}"


def _values(random: Random) -> str:
    return ", ".join(_columns(random))


def _columns(random: Random) -> tuple[str, ...]:
    customer = random.choice(('"Ann"', "NULL", "''", "'O\\'Neil 😀'"))
    created = random.choice(_CREATED)
    note = random.choice(_NOTES)
    return (
        customer,
        f"{random.randrange(-(10**11), 10**11) / 100:.2f}",
        str(random.randrange(-128, 100)),
        "NULL" if created is None else f"'{created}'",
        "NULL" if note is None else _quoted(note),
    )


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
