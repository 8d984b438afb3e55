"""Keys of texts under every collation that a column of either server can have."""

import pytest

from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.collation import has_fold
from millrace.drivers.mysql.connection import connect
from millrace.drivers.mysql.folds import read_folds
from tests.kit.apply.collations import (
    TextRows,
    adversarial_texts,
    collations_of,
    fill,
    ranks,
    unequal_keys,
)
from tests.kit.apply.local import endpoint_of

pytestmark = pytest.mark.both_flavours


def test_equal_texts_share_a_key_under_every_collation(target_server: DatabaseServer) -> None:
    """About 280 collations of MySQL and 1,280 of MariaDB, each with its own fold."""
    session = connect(endpoint_of(target_server))
    texts = adversarial_texts(2, count=3000)
    fill(session, texts)
    rows = TextRows(texts)
    found = {}
    for charset, collation in collations_of(session):
        if has_fold(collation):
            folds = read_folds(session, [(charset, collation)])
            wrong = unequal_keys(
                rows.keys(folds.get(collation)), ranks(session, charset, collation)
            )
            if wrong:
                found[collation] = [(ascii(texts[a]), ascii(texts[b])) for a, b in wrong[:3]]
    session.query("DROP DATABASE fold")
    session.close()
    assert found == {}
