"""The publisher's contract with a broker, on the model of one; see ``tests/kit/publisher/contract.py``."""

import pytest

from tests.kit.publisher.contract import (
    test_foreign_record_stops_the_task,
    test_nothing_is_written_after_an_open_transaction,
    test_older_owner_writes_nothing_after_newer_fence,
    test_oversized_row_is_not_skipped,
    test_removed_records_are_not_published_again,
    test_rows_hidden_by_open_transaction_stop_the_task,
    test_stale_owner_writes_nothing,
)
from tests.kit.publisher.model_rig import ModelRig

__all__ = [
    "test_foreign_record_stops_the_task",
    "test_nothing_is_written_after_an_open_transaction",
    "test_older_owner_writes_nothing_after_newer_fence",
    "test_oversized_row_is_not_skipped",
    "test_removed_records_are_not_published_again",
    "test_rows_hidden_by_open_transaction_stop_the_task",
    "test_stale_owner_writes_nothing",
]


@pytest.fixture
def rig() -> ModelRig:
    """A topic without a broker."""
    return ModelRig("shop")
