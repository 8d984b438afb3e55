"""Texts that collations might call equal, the server's verdict about them, and their causality keys.

The server is the oracle: a window function ranks all texts by a collation, and texts of one rank are equal.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from unicodedata import normalize

import numpy as np

from millrace.consumer.kernel import hashes
from millrace.consumer.records.numbers import RecordNumbers
from millrace.consumer.records.row_schemas import RowSchemas, make_programs
from millrace.consumer.records.rows import Rows, walk_values
from millrace.consumer.tables.causality_keys import KeyLine, find_keys, make_key_programs
from millrace.drivers.mysql.collation import Fold, make_table
from millrace.drivers.mysql.connection import MySqlSession
from millrace.schemas.gtid import Flavour
from millrace.schemas.record.avro_schema import envelope_schema
from tests.kit.apply.tables import table, text
from tests.kit.apply.topic import SET, RecordStream
from tests.kit.apply.values import values_of

TABLE = table("fold", "words", text("t", 60))
LENGTH_MAX = 40
KEY, TOKEN = 1, 2

# Small alphabets in which characters, alone or together, may be equal. All texts of up to 3 of them are tried.
_ALPHABETS = (
    "dzsDZS", "csgyCS", "lnytLj", "aAåÅáæ", "ßsSẞ", "ijIİı\u0307", "дДйИи\u0306",
    "eêE\u0302\u0300\u0301", "dDžŽz\u030c", "mMn\u0304\u030c\u0300", "oöőÖO\u0308", "l·Lŀ\u00b7 ",
    "vwVWuü", "chCHčc", "เแกขaA", "ເແກຂa", "カーアキヽか", "ガカ\u3099ー゛ヾ",
    "\u09c7\u09be\u09cb\u09d7\u0995", "\u0fb2\u0f81\u0f71\u0f80\u0f72", "가각\u1100\u1161\u11a8ㄱ",
    "𐐀𐐨😀😁", "a \u00a0\u3000\t\n", "a\u0001\u00ad\u200b\u0000", "ﬁfiﬀF", "αΑάσςΣ", "آا\u0653أ",
    "ﷺصل ", "①1１¹", "Ａａaｶカ", "\u102d\u1036\u1037\u1000\u103a", "重庆中沈阳",
    "\U000e0001\U0002a6d6\U0001f1e6a", "\u1100\ua960\ud7b0",
)  # fmt: skip
_MUTATIONS: tuple[Callable[[str], str], ...] = (
    str.upper,
    str.lower,
    str.swapcase,
    lambda at: normalize("NFD", at),
    lambda at: normalize("NFC", at),
    lambda at: normalize("NFKD", at),
    lambda at: at + " ",
    lambda at: at + "\u00a0",
    lambda at: at + "\u0000",
    lambda at: at[:1] + "\u00ad" + at[1:],
    lambda at: at[:1] + "\u0301" + at[1:],
    lambda at: at.replace("ss", "ß").replace("ae", "ä").replace("AE", "Æ"),
    lambda at: at.replace("ß", "ss").replace("æ", "ae").replace("ö", "oe"),
    lambda at: at[::-1],
    lambda at: at[:1] * 2 + at[1:],
)


def adversarial_texts(seed: int, *, count: int) -> list[str]:
    """Distinct texts: all short ones of the alphabets, and ``count`` random ones, each with two near relatives."""
    found = {
        "".join(made)
        for alphabet in _ALPHABETS
        for length in range(4)
        for made in product(alphabet, repeat=length)
    }
    found.update(("ddzs", "dzsdzs", "Ddzs", "ccs", "cscs", "nyny", "nny", "𐐀 ", "CH", "cH", "Ch"))
    chance = random.Random(seed)
    for _ in range(count):
        made = "".join(_character(chance) for _ in range(chance.randint(1, 6)))
        found.add(made)
        for _ in range(2):
            made = chance.choice(_MUTATIONS)(made)
            found.add(made[:LENGTH_MAX])
    return sorted(found)


def _character(chance: random.Random) -> str:
    if chance.random() < 0.5:
        return chance.choice(chance.choice(_ALPHABETS))
    while True:
        top = chance.choice((0x80, 0x250, 0x600, 0x3000, 0x10000, 0x20000, 0x110000))
        point = chance.randrange(0x20, top)
        if not 0xD800 <= point < 0xE000:
            return chr(point)


@dataclass(frozen=True)
class TextKeys:
    """The keys of texts under one fold: ``hashes[n]``, 0 for a text that is not comparable (it holds ``TOKEN``)."""

    hashes: Sequence[int]


class TextRows:
    """Insert records of texts, walked once."""

    def __init__(self, texts: Iterable[str]) -> None:
        stream = RecordStream()
        for one in texts:
            stream.insert(TABLE, {"t": one})
        values = values_of(stream.values[1:])
        schemas = RowSchemas({100: envelope_schema(SET, TABLE).text})
        self.rows: Rows = walk_values(values, make_programs(schemas))

    def keys(self, fold: Fold | None) -> TextKeys:
        """The key of each text; without a fold by its bytes."""
        method = hashes.PADDED if fold is None else hashes.FOLDED
        line = KeyLine(hashes.ROW, KEY, TOKEN, ((0, method, 0, 0),))
        programs = make_key_programs([(line,)], make_table([fold] if fold else []))
        entries = find_keys(self.rows, programs, RecordNumbers(np.arange(len(self.rows))))
        found = [0] * len(self.rows)
        shares = [False] * len(self.rows)
        for owner, key, mode in zip(entries.owners, entries.hashes, entries.modes, strict=True):
            if int(key) == TOKEN:
                shares[owner] = int(mode) == hashes.SHARED
            else:
                found[owner] = int(key)
        if fold is not None:  # a text without a key of its own waits for all others
            assert all(bool(key) == share for key, share in zip(found, shares, strict=True))
        return TextKeys(found)


def collations_of(session: MySqlSession) -> list[tuple[str, str]]:
    """(character set, collation) of all that a text column can have."""
    column, place = "COLLATION_NAME", "COLLATIONS"
    if session.flavour is Flavour.MARIADB:
        column, place = "FULL_COLLATION_NAME", "COLLATION_CHARACTER_SET_APPLICABILITY"
    return [
        (str(charset), str(name))
        for charset, name in session.query(
            f"SELECT CHARACTER_SET_NAME, {column} FROM information_schema.{place}"
            f" WHERE CHARACTER_SET_NAME <> 'binary' ORDER BY {column}"
        )
    ]


def fill(session: MySqlSession, texts: Sequence[str]) -> None:
    """A table ``fold.words`` with these texts."""
    session.query("DROP DATABASE IF EXISTS fold")
    session.query("CREATE DATABASE fold")
    session.query(
        f"CREATE TABLE fold.words (n INT PRIMARY KEY, t VARCHAR({LENGTH_MAX + 2}))"
        " DEFAULT CHARSET utf8mb4 COLLATE utf8mb4_bin"
    )
    for first in range(0, len(texts), 2000):
        part = texts[first : first + 2000]
        given = [item for at, one in enumerate(part) for item in (first + at, one)]
        session.query("INSERT INTO fold.words VALUES " + ",".join(["(%s,%s)"] * len(part)), given)
    session.commit()


def ranks(session: MySqlSession, charset: str, collation: str) -> Mapping[int, int]:
    """For each text that the character set has: its rank. Equal texts have the same rank."""
    there = f"CONVERT(t USING {charset})"
    back = f"CONVERT({there} USING utf8mb4)"
    rows = session.query(
        f"SELECT n, DENSE_RANK() OVER (ORDER BY {there} COLLATE {collation}) FROM fold.words"
        f" WHERE {back} COLLATE utf8mb4_bin = t AND LENGTH(t) = LENGTH({back})"
    )
    return {int(str(number)): int(str(rank)) for number, rank in rows}


def unequal_keys(found: TextKeys, by_rank: Mapping[int, int]) -> list[tuple[int, int]]:
    """Pairs of texts that the server calls equal, but whose keys differ."""
    first: dict[int, int] = {}
    wrong = []
    for number, rank in by_rank.items():
        if not found.hashes[number]:
            continue
        known = first.setdefault(rank, number)
        if found.hashes[known] != found.hashes[number]:
            wrong.append((known, number))
    return wrong
