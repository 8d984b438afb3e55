"""Keys of texts against the servers' own verdict: equal texts never have different keys.

``make chaos`` tries every collation of both servers (``tests/chaos/test_collations.py``).
"""

from collections.abc import Iterator

import pytest

from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.collation import has_fold
from millrace.drivers.mysql.connection import MySqlSession, connect
from millrace.drivers.mysql.folds import read_folds
from millrace.schemas.gtid import Flavour
from tests.fixtures.sweep import Sweep
from tests.kit.apply.collations import TextRows, adversarial_texts, fill, ranks, unequal_keys
from tests.kit.apply.local import endpoint_of

pytestmark = pytest.mark.both_flavours

# those of both servers are shared out
_CHOSEN = {
    Flavour.MYSQL: """
    utf8mb4_general_ci utf8mb4_unicode_520_ci latin1_german2_ci utf16_unicode_ci cp932_bin
    utf8mb4_0900_ai_ci utf8mb4_0900_as_cs utf8mb4_hu_0900_ai_ci utf8mb4_ja_0900_as_cs_ks utf8mb4_zh_0900_as_cs
    utf8mb4_vi_0900_ai_ci utf8mb4_es_trad_0900_as_cs""",
    Flavour.MARIADB: """
    utf8mb4_unicode_ci utf8mb4_bin latin1_swedish_ci latin2_general_ci gbk_chinese_ci
    utf8mb4_uca1400_ai_ci utf8mb4_uca1400_as_cs utf8mb4_uca1400_nopad_ai_ci utf8mb4_uca1400_danish_as_ci
    utf8mb4_thai_520_w2 utf8mb4_croatian_ci utf8mb4_uca1400_turkish_ai_ci""",
}
_WORDS = """
    Straße Strauß Größe groß Gruß Grüße Müller Äpfel Öl Übung fließen Fluss Zürich München Köln
    привет мир молоко хлеб город река север россия весна зима утро вечер книга дом ёлка
    北京 上海 中国 你好 世界 数据 订单 客户 产品 价格 苹果 香蕉 学生 老师 医院
    東京 大阪 さくら ひらがな カタカナ データ ラーメン すし てんぷら 注文 商品 りんご みかん
    😀 😁 🚀 🎉 🍎 🍏 🐶 🐱 👍 👎 ❤ ⭐ 🌍 🌙 ⚡"""
_GERMAN, _RUSSIAN, _CHINESE, _JAPANESE, _EMOJI = map(str.split, _WORDS.strip().splitlines())
_WIDE = ("utf8mb4_unicode_520_ci",)  # emoji are one character in general_ci and unicode_ci
_PARALLEL = {
    Flavour.MYSQL: (*_WIDE, "utf8mb4_0900_ai_ci", "utf8mb4_0900_as_cs"),
    Flavour.MARIADB: (*_WIDE, "utf8mb4_uca1400_ai_ci", "utf8mb4_uca1400_as_ci"),
}


@pytest.fixture
def session(target_server: DatabaseServer) -> Iterator[MySqlSession]:
    """A session that may create the database ``fold``."""
    made = connect(endpoint_of(target_server))
    yield made
    made.query("DROP DATABASE IF EXISTS fold")
    made.close()


def test_texts_the_server_calls_equal_share_a_key(session: MySqlSession, sweep: Sweep) -> None:
    """For collations of each kind; the server ranks all texts at once."""
    texts = adversarial_texts(1, count=1500)
    fill(session, texts)
    rows = TextRows(texts)
    equal = 0
    for collation in sweep(_CHOSEN[session.flavour].split(), every=2):
        charset = collation.split("_")[0]
        folds = read_folds(session, [(charset, collation)])
        by_rank = ranks(session, charset, collation)
        wrong = unequal_keys(rows.keys(folds.get(collation)), by_rank)
        assert [(ascii(texts[a]), ascii(texts[b])) for a, b in wrong[:9]] == [], collation
        equal += len(by_rank) - len(set(by_rank.values()))
    assert equal > 10_000


def test_ordinary_words_have_separate_keys(session: MySqlSession) -> None:
    """German, Russian, Chinese, Japanese and emoji, so that tables keyed by them are parallel."""
    basic = [*_GERMAN, *_RUSSIAN, *_CHINESE, *_JAPANESE]
    for collation in _PARALLEL[session.flavour]:
        _check_distinct(session, collation, [*basic, *_EMOJI])
    for collation in ("utf8mb4_general_ci", "utf8mb4_unicode_ci"):
        _check_distinct(session, collation, basic)
    _check_distinct(session, "latin1_swedish_ci", _GERMAN)
    _check_distinct(session, "gbk_chinese_ci", _CHINESE)


def _check_distinct(session: MySqlSession, collation: str, words: list[str]) -> None:
    folds = read_folds(session, [(collation.split("_")[0], collation)])
    found = TextRows(words).keys(folds[collation]).hashes
    assert all(found), collation
    assert len(set(found)) == len(words), collation


def test_collations_that_move_characters_have_no_fold(session: MySqlSession) -> None:
    """Their texts are not compared, so their tables are applied in order."""
    names = ("tis620_thai_ci", "latin2_czech_cs", "cp1250_czech_cs")
    assert not any(map(has_fold, names))
    assert read_folds(session, [(name.split("_")[0], name) for name in names]) == {}
