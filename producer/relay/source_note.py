"""A setting of the source that its binlog does not show, for processes that serve the relay log.

    <relay_dir>/relay.source    {"lower_case_table_names": 0 or 1}

The worker writes it when it has chosen a member. Without it, names are taken as they are.
"""

import json
from pathlib import Path

from millrace.log import get_logger
from producer.relay import layout
from producer.relay.files import DISK, Files, read_all

SOURCE_NAME = "relay.source"
_FOLDS = "lower_case_table_names"

log = get_logger("producer.relay")


def write_source_note(root: Path, *, folds_names: bool, files: Files = DISK) -> None:
    """Replace the note. A disk error is only logged."""
    try:
        text = json.dumps({_FOLDS: int(folds_names)}) + "\n"
        layout.replace_file(root / SOURCE_NAME, text, is_durable=False, files=files)
    except OSError as error:
        log.warning("source note not written", file=str(root / SOURCE_NAME), error=error)


def read_source_note(root: Path, files: Files = DISK) -> int:
    try:
        found = json.loads(read_all(files, root / SOURCE_NAME))
    except (OSError, ValueError):
        return 0
    return 1 if isinstance(found, dict) and found.get(_FOLDS) else 0
