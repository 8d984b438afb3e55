"""Sets a damaged closed file aside, and says exactly what replaces it.

    damage = find_damage(relay, at)                  # None: the file is whole
    wanted = set_aside(relay, damage)                # F is now F.damaged; readers meet a gap there
    … fetch wanted.file from wanted.server, or wanted.lost from another member …
    put_back(relay, wanted, fetched_path)            # the same server's file, verified

The steps, for a file F (or F.zst):

| step                                  | a crash after it leaves                                                      |
|---------------------------------------|------------------------------------------------------------------------------|
| F renamed to F.damaged                | a gap, which no reader crosses (``reader``): a task that needs it reads from |
|                                       | any member that has the transactions, in a new sub-directory                 |
| F.new fetched                         | the same; the next start removes F.new                                       |
| F.new renamed to F, directory synced  | the file that was fetched                                                    |

F.damaged is kept for the operator; a purge of the sub-directory removes it. Guarantees: only files whose damage was
seen by a walk with checksums are set aside; never the file being written. Not done here: fetching.
"""

from dataclasses import dataclass
from pathlib import Path

from millrace.errors import Fatal
from millrace.faults import fault_point, register
from millrace.log import get_logger
from producer.relay import layout
from producer.relay.damage import Damage, GtidInterval
from producer.relay.files import disk_errors
from producer.relay.layout import DAMAGED_SUFFIX, NEW_SUFFIX
from producer.relay.recovery import walk_stored
from producer.relay.stored import open_stored, packed_path
from producer.relay.survey import Survey
from producer.relay.writer import RelayLog
from schemas.gtid import GtidPosition, unite
from schemas.place import FIRST_POS, Coordinates

AFTER_SET_ASIDE = register("relay.quarantine.after_set_aside")
BEFORE_PUT_BACK = register("relay.quarantine.before_put_back")
AFTER_PUT_BACK = register("relay.quarantine.after_put_back")

log = get_logger("producer.relay")


@dataclass(frozen=True, slots=True)
class Replacement:
    """``file`` of ``server`` must be fetched whole, or from another member the transactions in ``lost``.

    ``before`` are the GTIDs executed before the file: a dump by GTID of another member starts there.
    """

    at: Coordinates
    server: str
    file: str
    before: GtidPosition | None
    lost: GtidInterval


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


def set_aside_damaged(relay: RelayLog, error: Fatal) -> Replacement | None:
    """For an error MR-2004 of a reader: set the damaged file aside; None if no closed file is damaged there."""
    if error.code != "MR-2004" or "coordinates" not in error.context:
        return None
    damage = find_damage(relay, Coordinates.parse(str(error.context["coordinates"])))
    return None if damage is None else set_aside(relay, damage)


def replacement_of(survey: Survey, damage: Damage) -> Replacement:
    """The replacement of a damaged file. Pure, except that it reads heads of files."""
    subdir = layout.parse_subdir(damage.at.subdir)
    assert subdir is not None  # damage is found in files of valid names
    start = damage.at.at(FIRST_POS)
    before = survey.position_before(subdir, damage.at.file)
    return Replacement(start, subdir.server, damage.at.file, before, damage.lost)


def set_aside(relay: RelayLog, damage: Damage) -> Replacement:
    """Rename the damaged file and return what replaces it. Fatal MR-2004 for the file being written."""
    end, at = relay.end(), damage.at
    if end is not None and at.order[:2] >= end.order[:2]:
        raise Fatal("MR-2004", f"{damage}, in the file being written", directory=relay.root)
    with disk_errors(relay.root, at):
        wanted = replacement_of(Survey(relay.root, relay.disk), damage)
        path = relay.path(at)
        names = relay.disk.list_files(path.parent)
        stored = path if path.name in names else packed_path(path)
        relay.unlist(at)
        relay.disk.replace(stored, stored.with_name(stored.name + DAMAGED_SUFFIX))
        relay.disk.sync_directory(path.parent)
    fault_point(AFTER_SET_ASIDE)
    log.error("damaged relay file set aside", file=str(at), why=damage.why, gtids=str(damage.lost))
    return wanted


def fetched_path(relay: RelayLog, wanted: Replacement) -> Path:
    """Where to write the fetched file. A start removes it."""
    return relay.path(wanted.at).with_name(wanted.file + NEW_SUFFIX)


def put_back(relay: RelayLog, wanted: Replacement) -> None:
    """Verify the file at ``fetched_path`` and list it in the place of the damaged one. Fatal MR-2004 if it differs."""
    new_path = fetched_path(relay, wanted)
    with disk_errors(relay.root, wanted.at):
        file = open_stored(new_path, relay.disk)
        try:
            walked = walk_stored(file, relay.flavour)
        finally:
            file.close()
        if walked is None or not walked.is_whole:
            raise Fatal("MR-2004", f"{new_path.name} was not fetched whole", directory=relay.root)
        through, reached = wanted.lost.through, walked.position
        if wanted.before is not None:
            reached = unite(wanted.before, reached)
        if through is not None and not reached.includes(through):
            missing = GtidInterval(reached, through)
            raise Fatal("MR-2004", f"the fetched {wanted.file} is missing {missing}")
        fd = relay.disk.open(new_path)
        try:
            relay.disk.sync(fd)
        finally:
            relay.disk.close(fd)
        fault_point(BEFORE_PUT_BACK)
        relay.disk.replace(new_path, relay.path(wanted.at))
        relay.disk.sync_directory(new_path.parent)
        fault_point(AFTER_PUT_BACK)
    subdir = layout.parse_subdir(wanted.at.subdir)
    assert subdir is not None
    with relay.condition:
        names = relay.files.setdefault(subdir, [])
        names[:] = sorted({*names, wanted.file}, key=layout.file_number)
        relay.condition.notify_all()
    log.info("damaged relay file replaced", file=str(wanted.at))
