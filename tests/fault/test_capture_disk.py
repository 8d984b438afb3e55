"""Capture on a failing disk: receiver, relay log with its real sync thread, reader. Errors are reported and retried."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from millrace.deploy.servers import DatabaseServer
from millrace.errors import Retryable
from millrace.producer.relay import layout
from millrace.producer.source.set_stream import Site
from millrace.producer.source.set_streams import Upstreams
from millrace.schemas.documents import (
    Account,
    SecretPlace,
    SecretReference,
    SetDocument,
    TableFilter,
)
from millrace.schemas.progress import Progress
from tests.fixtures.servers import FLAVOURS
from tests.kit.capture.rig import MemoryCapture
from tests.kit.faults.failing_disk import FailingDisk, Trouble
from tests.kit.relay.relay import UNVERIFIED, member_of, position_of
from tests.kit.waiting import eventually

# MR-2002: the disk fails. MR-2003: written data could not be made durable; it is reported first.
SOON = (
    (Trouble("write", errno.ENOSPC, half=True), "MR-2002"),
    (Trouble("sync", errno.EIO), "MR-2003"),
)
AT_START = (
    "lock",
    "make_directory",
    "list_directories",
    "list_files",
    "size",
    "truncate",
)
ALL = (
    *SOON,
    (Trouble("write", errno.ENOSPC), "MR-2002"),
    (Trouble("write", errno.EIO), "MR-2002"),
    (Trouble("write", errno.EIO, half=True), "MR-2002"),
    (Trouble("write", half=True), ""),
    (Trouble("sync", errno.ENOSPC), "MR-2003"),
    (Trouble("create", errno.ENOSPC), "MR-2002"),
    (Trouble("replace", errno.EIO), "MR-2002"),
    (Trouble("sync_directory", errno.EIO), "MR-2002"),
    (Trouble("close", errno.EIO), "MR-2002"),
    (Trouble("open", errno.EIO), "MR-2002"),
    (Trouble("read_into", errno.EIO), "MR-2002"),
    *((Trouble(each, errno.EIO, is_at_start=True), "MR-2002") for each in AT_START),
)


@dataclass
class Scene:
    """A server, its capture, and the disk of the relay log."""

    server: DatabaseServer
    capture: MemoryCapture
    disk: FailingDisk
    folder: Path
    count: int = 0

    def write(self, *, is_flushed: bool = False) -> None:
        """A source transaction of three rows; ``is_flushed`` makes it the last of its binlog file."""
        values = (f"({self.count + number}, REPEAT('v', 300))" for number in (1, 2, 3))
        self.server.execute(f"INSERT INTO failing_disk.t VALUES {', '.join(values)}")
        self.count += 3
        if is_flushed:
            self.server.execute("FLUSH BINARY LOGS")

    def assert_complete(self) -> None:
        """Every row is captured once and in order."""

        def is_there() -> bool:
            assert self.capture.error is None, self.capture.error
            return len(self.capture.rows) >= self.count

        eventually(is_there, what=f"{self.count} rows")
        ids = [dict(row.change.after or {})["id"] for row in self.capture.rows]
        assert ids == list(range(1, self.count + 1))
        assert [row.source.seq for row in self.capture.rows] == ids

    def cause(self, trouble: Trouble, code: str) -> None:
        """Write until ``code`` is reported, or until a short write without a code has passed; then repair the disk."""
        known, met = len(self.capture.errors), self.disk.met_count
        self.disk.trouble = trouble

        def is_reported() -> bool:
            # the writer syncs a file that ends; the sync thread meets the fault only while no file ends
            self.write(is_flushed=trouble.operation != "sync" and self.count % 2 == 0)
            assert self.capture.error is None, self.capture.error
            if not code:
                return self.disk.met_count > met + 3
            is_met = self.disk.met_count > met  # at a start: after the first error
            return is_met and code in [error.code for error in self.capture.errors[known:]]

        eventually(is_reported, every_s=0.1, what=f"{trouble}: {code}")
        self.disk.trouble = None
        assert all(isinstance(error, Retryable) for error in self.capture.errors[known:])
        codes = {error.code for error in self.capture.errors[known:]}
        assert codes <= ({code, "MR-2002"} if code else set()), trouble

    def assert_identical(self) -> None:
        """There is one sub-directory, and its closed files equal the server's byte for byte."""
        self.server.execute("FLUSH BINARY LOGS")
        newest = str(self.server.execute("SHOW BINARY LOGS")[-1][0])
        (subdir,) = layout.list_subdirs(self.folder)
        folder = self.folder / str(subdir)
        eventually(lambda: layout.list_files(folder)[-1] == newest)
        closed = layout.list_files(folder)[:-1]
        assert closed
        for name in closed:
            assert (folder / name).read_bytes() == (self.server.binlog_dir / name).read_bytes()


@contextmanager
def captured(server: DatabaseServer, folder: Path) -> Iterator[Scene]:
    """Capture of a new table."""
    server.execute("CREATE DATABASE failing_disk")
    server.execute("CREATE TABLE failing_disk.t (id INT PRIMARY KEY, v VARCHAR(300))")
    secret = folder / "password"
    secret.write_text(server.password)
    document = SetDocument(
        name="f",
        members=(member_of(server),),
        account=Account(server.user, SecretReference(SecretPlace.FILE, str(secret))),
        tls=UNVERIFIED,
    )
    disk = FailingDisk()
    streams = Upstreams(Site(root=folder / "relay", disk=disk))
    tables = TableFilter(include=("failing_disk.*",))
    progress = Progress(position_of(server), None, 0)
    try:
        with MemoryCapture(streams, document, tables, progress) as capture:
            yield Scene(server, capture, disk, folder / "relay" / "f")
    finally:
        server.execute("DROP DATABASE failing_disk")


def try_troubles(
    server: DatabaseServer, folder: Path, troubles: tuple[tuple[Trouble, str], ...]
) -> None:
    """Try the troubles one after the other; at the end no row is missing."""
    with captured(server, folder) as scene:
        scene.write()
        scene.assert_complete()
        for trouble, code in troubles:
            scene.cause(trouble, code)
            scene.write()
            scene.assert_complete()
        scene.assert_identical()


def test_failing_capture_disk_is_reported_and_loses_no_row(
    mariadb_server: DatabaseServer, tmp_path: Path
) -> None:
    """A full disk during a write (MR-2002), then a failing fsync (MR-2003); capture continues after each repair."""
    try_troubles(mariadb_server, tmp_path, SOON)


@pytest.mark.chaos
@pytest.mark.parametrize("flavour", FLAVOURS, ids=str)
@pytest.mark.parametrize("trouble", ALL, ids=lambda each: str(each[0]))
def test_any_failing_disk_operation_of_capture_loses_no_row(
    request: pytest.FixtureRequest, flavour: str, trouble: tuple[Trouble, str], tmp_path: Path
) -> None:
    """Each operation fails twice in a row."""
    server = request.getfixturevalue(f"{flavour}_server")
    assert isinstance(server, DatabaseServer)
    try_troubles(server, tmp_path, (trouble, trouble))
