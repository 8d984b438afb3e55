"""docs/subscribers.md shows one update in every format; the records there are those that the formats write."""

import json
import re
from decimal import Decimal

import pytest

from millrace.schemas.table.structure import Column
from millrace.schemas.view.format_options import FormatName, FormatOptions
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import RecordStream
from tests.kit.format_cases import CASES
from tests.kit.format_rows import encoded, read
from tests.kit.paths import ROOT

PRICE = Column("price", CASES["decimal_5_2"].type, nullable=True)
ORDERS = table("shop", "orders", integer("id"), text("name", 20), PRICE)
PAGE = (ROOT / "docs" / "subscribers.md").read_text()


def _record(name: FormatName) -> dict[str, object]:
    stream = RecordStream()
    before = {"id": 7, "name": "ü", "price": Decimal("1.00")}
    stream.update(ORDERS, before, before | {"price": Decimal("1.25")})
    records = encoded(FormatOptions.of(name), ORDERS, stream)
    assert len(records) == 1
    sent = read(records)[0]
    return {"key": sent.key, "value": sent.value}


@pytest.mark.parametrize("name", FormatName)
def test_page_shows_the_record_of_each_format(name: FormatName) -> None:
    """The block after the format's heading has its key and its value; only blanks may differ."""
    block = re.search(rf"^### {name}\n.*?```json\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)
    assert block is not None, f"no record of {name}"
    key, value = (json.loads(part) for part in block[1].split("\n\n"))
    assert {"key": key, "value": value} == _record(name)
    assert f"| `{name}`" in PAGE, "the table to choose from"
