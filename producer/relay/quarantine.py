"""Sets a damaged closed file aside. What it held is then read from a member again.

    damage = set_aside_damaged(relay, error)   # F is now F.damaged; damage.lost are its transactions

One step: F or F.zst is renamed to F.damaged. It leaves a gap, which no reader crosses (``reader``). A task that needs
the file reads from any member that has the transactions, in a new sub-directory.

F.damaged is kept for the operator; a purge of the sub-directory removes it. Guarantees: only files whose damage was
seen by a walk with checksums are set aside; never the file being written. Not done here: fetching.
"""

from millrace.errors import Fatal
from millrace.faults import fault_point, register
from millrace.log import get_logger
from millrace.metrics import counter
from millrace.producer.relay import layout
from millrace.producer.relay.damage import Damage
from millrace.producer.relay.files import disk_errors
from millrace.producer.relay.layout import DAMAGED_SUFFIX
from millrace.producer.relay.stored_file import packed_path
from millrace.producer.relay.survey import Survey
from millrace.producer.relay.writer import RelayLog
from millrace.schemas.place import Coordinates

AFTER_SET_ASIDE = register("relay.quarantine.after_set_aside")

CORRUPTION = counter("millrace_relay_corruption_total")
for _where in ("disk", "stream"):
    CORRUPTION.labels(where=_where)  # 0 from the start: a query for an increase sees the first one

log = get_logger("producer.relay")


def find_damage(relay: RelayLog, at: Coordinates) -> Damage | None:
    """The damage of the closed file of ``at``; None if it is whole or gone. Retryable MR-2002."""
    subdir = layout.parse_subdir(at.subdir)
    end = relay.end()
    if subdir is None or (end is not None and at.order[:2] >= end.order[:2]):
        return None
    with disk_errors(relay.root, at):
        try:
            damage, _ = Survey(relay.root, relay.disk).check_file(subdir, at.file)
        except FileNotFoundError:
            return None
    return damage


def set_aside_damaged(relay: RelayLog, error: Fatal) -> Damage | None:
    """For an error MR-2004 of a reader: set the damaged file aside. Returns its damage; None if there is none."""
    if error.code != "MR-2004" or "coordinates" not in error.context:
        return None
    damage = find_damage(relay, Coordinates.parse(str(error.context["coordinates"])))
    if damage is not None:
        set_aside(relay, damage)
    return damage


def set_aside(relay: RelayLog, damage: Damage) -> None:
    """Rename the damaged file. Fatal MR-2004 for the file being written."""
    end, at = relay.end(), damage.at
    if end is not None and at.order[:2] >= end.order[:2]:
        raise Fatal("MR-2004", f"{damage}, in the file being written", directory=relay.root)
    with disk_errors(relay.root, at):
        path = relay.path(at)
        names = relay.disk.list_files(path.parent)
        stored = path if path.name in names else packed_path(path)
        relay.unlist(at)
        relay.disk.replace(stored, stored.with_name(stored.name + DAMAGED_SUFFIX))
        relay.disk.sync_directory(path.parent)
    fault_point(AFTER_SET_ASIDE)
    CORRUPTION.labels(where="disk").inc()
    log.error("damaged relay file set aside", file=str(at), why=damage.why, gtids=str(damage.lost))
