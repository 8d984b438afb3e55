"""A relay log of four files, and the worker's answer to a request that may evict tasks."""

from pathlib import Path

from millrace.producer.relay.control import REQUEST_NAME, PurgeRequest, answer_purge_request
from millrace.producer.relay.purge import Positions
from millrace.producer.relay.writer import RelayLog
from millrace.schemas.gtid import Flavour, GtidPosition, parse_gtid_set
from tests.kit.binlog.plain_files import SERVER, BinlogFile
from tests.kit.relay.lay import write_file


def four_files(root: Path) -> RelayLog:
    """One source transaction per file."""
    relay = RelayLog.open(root, flavour=Flavour.MYSQL)
    relay.begin_subdir("server-a")
    for number in range(1, 5):
        write_file(relay, f"mysql-bin.{number:06d}", BinlogFile(first_number=number).transaction())
    return relay


def at(last: int) -> GtidPosition:
    """The position after the first ``last`` transactions."""
    return parse_gtid_set(Flavour.MYSQL, f"{SERVER}:1-{last}")


def purge(relay: RelayLog, needed: Positions, *evict: str) -> list[str]:
    """Have the worker answer a request for everything, and return the names of the deleted files."""
    (relay.root / REQUEST_NAME).write_text(PurgeRequest(id="1", evict=evict).to_text())
    return [gone.file for gone in answer_purge_request(relay, needed=lambda: needed)]
