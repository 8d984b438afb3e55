"""Errors inside a source transaction that is skipped."""

import pytest

from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour, parse_gtid_set
from millrace.schemas.place import Coordinates
from millrace.schemas.progress import Progress
from tests.kit.binlog.plain_files import SERVER, BinlogFile
from tests.kit.capture.converter import Conversion, FileReader, FileSpan


class DamagedReader(FileReader):
    """A reader with damage after the first bytes."""

    def read(self, at: Coordinates, *, bytes_max: int, cuts_payloads: bool = False) -> FileSpan:
        """Return one event, or nothing after the end."""
        if at.pos == len(self._files[at.file]):
            raise Fatal("MR-2004", "damage", coordinates=str(at))
        return super().read(at, bytes_max=1)


def test_damage_in_a_skipped_transaction_keeps_its_code() -> None:
    """No GTID is named: the bytes in its place are foreign and may not be text."""
    file = BinlogFile().transaction(ending="ddl").transaction()
    content = file.data[: file.ends[1]] + file.events[-5]  # the GTID event of the second one
    progress = Progress(parse_gtid_set(Flavour.MYSQL, f"{SERVER}:2"), None, 0)
    run = Conversion(DamagedReader({"mysql-bin.000001": content}), progress=progress)
    with pytest.raises(Fatal) as raised:
        list(run.batches())
    assert raised.value.code == "MR-2004"
    assert "gtid" not in raised.value.context


@pytest.mark.parametrize("number", [1, 2])
def test_reused_gtid_of_another_server_is_not_skipped(
    number: int,
) -> None:
    """MariaDB's new primary reused the number of the lost one: its rows are in no topic."""
    file = BinlogFile(mariadb=True)
    for _ in range(3):
        file.transaction(ending="ddl")
    files = {"mysql-bin.000001": file.data}

    def convert(server: int) -> int:
        done = parse_gtid_set(Flavour.MARIADB, f"0-{server}-{number}")
        progress = Progress(done, None, 0)
        run = Conversion(FileReader(files), progress=progress, flavour=Flavour.MARIADB)
        return len(run.statements())

    assert convert(1) == 3 - number
    with pytest.raises(Fatal) as raised:
        convert(2)
    assert raised.value.code == "MR-1033"
    assert f"mysql-bin.000001:{file.ends[number - 1]}" in str(raised.value.context["coordinates"])
