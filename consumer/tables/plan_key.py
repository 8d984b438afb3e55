"""The plan key: a hash of all that the lanes of a turn's rows depend on, beside the records.

Processes with equal plan keys that read the same windows compute the same lanes. The key covers the version of
Millrace, the target's structure and its folds, the row schemas, the view of the task, and what the caller
adds: mark, applied seqs, number of lanes.
"""

from collections import deque
from collections.abc import Iterable
from hashlib import blake2b
from operator import attrgetter

from millrace import __version__
from millrace.consumer.tables.table_plans import TablePlans
from millrace.drivers.mysql.catalog import CatalogColumn, ForeignKey, Inventory, UniqueKey

KNOWN_MAX = 4  # inventories; one of 5,000 tables takes about 0.2 s
KEY_BYTES = 16

_known: deque[tuple[Inventory, bytes]] = deque(maxlen=KNOWN_MAX)

_column = attrgetter(*CatalogColumn.__slots__)
_unique = attrgetter(*UniqueKey.__slots__)
_foreign = attrgetter(*ForeignKey.__slots__)


def plan_key(plans: TablePlans, *more: object) -> bytes:
    """The key of these plans. ``more`` are values whose ``repr`` shows all of them."""
    texts = sorted(plans.schemas.texts.items())
    route, only = plans.route, plans.route.only
    applied = (
        *(route.view.hash, route.folds_names, sorted(route.elsewhere)),
        None if only is None else sorted(only),
    )
    return _hash(
        [repr((__version__, texts, applied, more)).encode(), _of_inventory(plans.inventory)]
    )


def _of_inventory(inventory: Inventory) -> bytes:
    for known, key in tuple(_known):
        if known is inventory:
            return key
    parts = [repr((inventory.flavour, inventory.alter_count, inventory.folds_names)).encode()]
    for place, table in sorted(inventory.tables.items()):
        columns = [(name, *_column(column)) for name, column in table.columns.items()]
        keys = [_unique(key) for key in table.unique_keys]
        kind = (table.engine, table.rolls_back, table.is_versioned)
        parts.append(repr((place, columns, keys, kind)).encode())
    parts += sorted(repr(_foreign(key)).encode() for key in inventory.foreign_keys)
    for name, fold in sorted(inventory.folds.items()):
        parts += [name.encode(), fold.packed]
    key = _hash(parts)
    _known.append((inventory, key))
    return key


def _hash(parts: Iterable[bytes]) -> bytes:
    made = blake2b(digest_size=KEY_BYTES)
    for part in parts:
        made.update(len(part).to_bytes(8, "big"))
        made.update(part)
    return made.digest()
