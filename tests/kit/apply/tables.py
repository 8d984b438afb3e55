"""Small table structures that tests of apply use, and the SQL that makes them."""

from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TextEncoding, TypeCode

UTF8 = TextEncoding("utf8mb4", 255)


def integer(name: str, *, nullable: bool = False) -> Column:
    """INT."""
    return Column(name, ColumnType(TypeCode.LONG), nullable)


def text(name: str, characters: int = 20, *, nullable: bool = True) -> Column:
    """VARCHAR in utf8mb4."""
    return Column(name, ColumnType(TypeCode.VARCHAR, 4 * characters, text=UTF8), nullable)


def uuid(name: str) -> Column:
    """BINARY(16)."""
    return Column(name, ColumnType(TypeCode.STRING, 16, text=TextEncoding("binary", 63)), False)


def table(database: str, name: str, *columns: Column, key: tuple[int, ...] = (0,)) -> TableSchema:
    """A table whose primary key is the columns of these indexes."""
    return TableSchema(database, name, columns, key, (0,) * len(key))


def accounts(database: str) -> TableSchema:
    """``id`` primary key, ``code`` and ``mail`` unique (mail without case), ``amount``."""
    return table(
        database,
        "accounts",
        integer("id"),
        integer("code", nullable=True),
        text("mail"),
        integer("amount"),
    )


ACCOUNTS_SQL = (
    "CREATE TABLE accounts (id INT PRIMARY KEY, code INT, mail VARCHAR(20), amount INT NOT NULL,"
    " UNIQUE KEY (code), UNIQUE KEY (mail)) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci"
)


def account(number: int, *, code: int | None = None, amount: int = 0) -> dict[str, object]:
    """A row of that table."""
    return {"id": number, "code": code, "mail": f"Mail{number}", "amount": amount}
