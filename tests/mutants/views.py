"""Guards of views: which rows are in one, and which values."""

from typing import Any

import numpy as np

from millrace.consumer.kernel import masks as kernel
from millrace.consumer.kernel.changes import put_changes
from millrace.consumer.view import mask_keys, masks, program
from tests.mutants.mutant import Mutant, Patch


def condition_not_evaluated(patch: Patch) -> None:
    """All rows are in the view."""

    def without_condition(records: Any, numbers: Any, width: int, _: Any, *more: Any) -> Any:
        return put_changes(records, numbers, width, np.empty((0, 0), np.int64), *more)

    patch.setattr("millrace.consumer.view.changes.put_changes", without_condition)


def masks_left_out(patch: Patch) -> None:
    """Values pass as they are."""
    patch.setattr(program, "make_masks", lambda *_: None)


def invalid_text_masked(patch: Patch) -> None:
    """Its bytes are masked, which are those of another text."""
    patch.setattr(masks, "_hmac_action", lambda _, key: [kernel.HMAC, kernel.OCTETS, 0, key])


def fingerprints_not_compared(patch: Patch) -> None:
    """Any secret computes the masks."""
    patch.setattr(mask_keys, "secret_fingerprint", lambda _: "")


MUTANTS = [
    Mutant(
        "a view's condition",
        condition_not_evaluated,
        "tests/unit/test_view_changes.py",
        {"test_both_images_decide_what_becomes_of_a_row": "assert"},
    ),
    Mutant(
        "a view's masks",
        masks_left_out,
        "tests/unit/test_view_masks.py",
        {
            "test_published_records_have_no_masked_value": "planted",
            "test_masked_changes_have_no_byte_of_other_values": "plant",
        },
    ),
    Mutant(
        "a text that has no mask",
        invalid_text_masked,
        "tests/unit/test_view_masks.py",
        {"test_invalid_text_has_no_hmac": "DID NOT RAISE Fatal"},
    ),
    Mutant(
        "the fingerprint of a mask's secret",
        fingerprints_not_compared,
        "tests/unit/test_view_masks.py",
        {"test_changed_secret_of_a_mask_is_refused": "DID NOT RAISE Fatal|assert"},
    ),
]
