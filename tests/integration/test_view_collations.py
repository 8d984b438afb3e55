"""Texts beside literals under every collation that a column can have: the kernel's verdict is the server's.

``make test`` takes a few collations of each kind, ``--chaos`` all of both servers: about 280 and 1,280.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from millrace.consumer.kernel.conditions import TRUE
from millrace.consumer.kernel.walk import FIRST_CELL
from millrace.consumer.view.conditions import evaluate, make_program
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.catalog import read_collations
from millrace.drivers.mysql.connection import MySqlSession, connect
from millrace.drivers.mysql.weights import read_weights
from millrace.schemas.gtid import Flavour
from millrace.schemas.sql.quoting import string
from millrace.schemas.table.charset import encode_text
from millrace.schemas.table.collation_ids import charset_of, exact_collation
from millrace.schemas.table.structure import TableSchema, TextEncoding
from millrace.schemas.view.collation import CollationWeights, Weights
from millrace.schemas.view.condition import Condition, compile_condition
from millrace.schemas.view.expression import Refused, parse
from tests.fixtures.sweep import Sweep
from tests.kit.apply.collations import TABLE, TextRows, adversarial_texts, collations_of
from tests.kit.apply.local import endpoint_of

pytestmark = pytest.mark.both_flavours

LITERALS = (
    "paid", "Open", "", " ", "a ", "straße", "ss", "café", "ch", "llama", "aa", "æon", "ﬁn", "i", "İ", "1", "½", "x-y",
    "я", "й", "日本", "か", "가", "😀", "e\u0301", "\u0301", "a\u0000", "\t", "Ω", "ｶﾞ", "ǆ", "\u00a0", "工程", "thai ก",
)  # fmt: skip
OWN_TEXTS = 30  # of characters that the collation's weights have, for each literal
OTHER_TEXTS = 500
CHOSEN = {
    Flavour.MYSQL: "latin1_german2_ci utf8mb4_da_0900_as_cs tis620_thai_ci",
    Flavour.MARIADB: "latin1_swedish_nopad_ci utf8mb3_uca1400_nopad_ai_cs",
}
UNWEIGHED = ("_czech_cs", "tis620_thai_", "_myanmar_", "big5_chinese_", "gb18030_")


@pytest.fixture
def session(target_server: DatabaseServer) -> Iterator[MySqlSession]:
    """A session of a server that plays the source."""
    with connect(endpoint_of(target_server)) as session:
        yield session


def test_weighed_texts_compare_as_on_the_server(session: MySqlSession, sweep: Sweep) -> None:
    """Each collation is exact, weighed, or refused by its name; most literals are accepted."""
    chance = random.Random(27)
    others = chance.sample(adversarial_texts(3, count=800), OTHER_TEXTS)
    ids = read_collations(session)
    names = [name for _, name in collations_of(session)]
    accepted = list[int]()
    for name in names if sweep.is_whole else CHOSEN[session.flavour].split():
        if exact_collation(ids[name]) is not None:
            continue
        (weights,) = read_weights(session, {ids[name]: LITERALS})
        assert bool(weights.problem) == any(part in name for part in UNWEIGHED), name
        conditions = dict(_accepted(_table(ids[name]), weights))
        assert tuple(sorted(conditions)) == weights.literals
        if conditions:
            own = [text for one in conditions for text in _relatives(weights, one, chance)]
            texts = [text for text in {*own, *others, *LITERALS} if _fits(name, ids, text)]
            equal = _compare(session, name, conditions, texts)
            accepted.append(len(conditions))
            print(f"{name}: {len(conditions)} literals, {len(texts)} texts, {equal} equal pairs")
    assert sum(accepted) >= 10 * len(accepted)


def _table(collation_id: int) -> TableSchema:
    (column,) = TABLE.columns
    text = TextEncoding(charset_of(collation_id), collation_id)
    return replace(TABLE, columns=(replace(column, type=replace(column.type, text=text)),))


def _fits(name: str, ids: Mapping[str, int], text: str) -> bool:
    return encode_text(charset_of(ids[name]), text) is not None


def _accepted(table: TableSchema, weights: CollationWeights) -> Iterator[tuple[str, Condition]]:
    for literal in LITERALS:
        tree = parse(f"t = {string(literal)}")
        try:
            yield literal, compile_condition(tree, table, (weights,))
        except Refused:
            continue


def _relatives(weights: CollationWeights, literal: str, chance: random.Random) -> Iterator[str]:
    """Texts of characters that weigh as those of the literal, with ignored and other ones between them."""
    alike: dict[Weights, list[str]] = {}
    for one in weights.ranges:
        some = chance.sample(range(one.first, one.last + 1), min(8, one.last - one.first + 1))
        alike.setdefault(one.weights, []).extend(map(chr, some))
    everything = [text for texts in alike.values() for text in texts]
    ignored = alike.get(tuple(() for _ in range(weights.level_count)), [""])
    for _ in range(OWN_TEXTS):
        text = "".join(
            chance.choice(alike[weights.weights_of(one)])
            + (chance.choice(ignored) if chance.random() < 0.2 else "")
            for one in literal
        )
        way = chance.random()
        if way < 0.2:
            text += chance.choice(everything)
        elif way < 0.3:
            text += " " * chance.randint(1, 3)
        elif way < 0.5:
            at = chance.randint(0, len(text))
            text = text[:at] + chance.choice(everything) + text[at + 1 :]
        yield text


def _compare(
    session: MySqlSession, collation: str, conditions: Mapping[str, Condition], texts: Sequence[str]
) -> int:
    """The number of equal pairs."""
    rows = TextRows(texts).rows
    firsts = rows.column(FIRST_CELL) + 1
    kernels = np.array(
        [evaluate(make_program(one), rows, firsts) for one in conditions.values()], np.uint8
    )
    servers = np.array(list(_verdicts(session, collation, conditions.values(), texts)), np.uint8)
    different = [
        (ascii(texts[at]), ascii(list(conditions)[number]), bool(servers[at][number]))
        for at, number in np.argwhere(servers != kernels.T)
    ]
    assert different == [], collation
    return int((kernels == TRUE).sum())


def _verdicts(
    session: MySqlSession, collation: str, conditions: Iterable[Condition], texts: Sequence[str]
) -> Iterator[tuple[int, ...]]:
    charset = collation.split("_")[0]
    listed = ", ".join(condition.sql for condition in conditions)
    for start in range(0, len(texts), 400):
        each = " UNION ALL ".join(
            f"SELECT {n} AS n, _utf8mb4 x'{text.encode().hex()}' AS t"
            for n, text in enumerate(texts[start : start + 400])
        )
        inner = f"SELECT n, CONVERT(t USING {charset}) COLLATE {collation} AS t FROM ({each}) texts"
        for _, *row in session.query(f"SELECT n, {listed} FROM ({inner}) words ORDER BY n"):
            yield tuple(int(str(one)) for one in row)
