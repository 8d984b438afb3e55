"""One upstream per set for all its tasks: sharing, failing together, starting earlier, purging."""

import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from millrace import cli
from millrace.deploy.servers import DatabaseServer, DatabaseSet, ServerOptions
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.producer.convert.xa import XaGroups
from millrace.producer.source import set_stream
from millrace.producer.source.set_stream import Site, Upstream
from millrace.producer.source.set_streams import Upstreams
from millrace.producer.task.capture import wait_for_start
from millrace.schemas.documents import (
    Account,
    Compression,
    RelayRules,
    SecretPlace,
    SecretReference,
    SetDocument,
    TableFilter,
    UpstreamRules,
)
from millrace.schemas.gtid import Flavour, parse_gtid_set
from millrace.schemas.place import Coordinates
from millrace.schemas.progress import Progress
from tests.fixtures.servers import FLAVOURS, NewServer
from tests.kit.binlog.session import session
from tests.kit.capture.rig import MemoryCapture
from tests.kit.relay.relay import (
    UNVERIFIED,
    flush,
    kill_dumps,
    member_of,
    position_of,
    read_everything,
)
from tests.kit.waiting import eventually

PATIENT_S = 10.0


@pytest.fixture
def document(source_set: DatabaseSet, tmp_path: Path) -> SetDocument:
    """The set read from its primary, with its password in a file."""
    secret = tmp_path / "password"
    secret.write_text(source_set.password)
    return SetDocument(
        name="shared",
        members=(member_of(source_set.primary),),
        account=Account(source_set.user, SecretReference(SecretPlace.FILE, str(secret))),
        tls=UNVERIFIED,
    )


def _wait_for_source(stream: Upstream, source_set: DatabaseSet) -> None:
    wanted = position_of(source_set.primary)
    eventually(lambda: stream.relay.position().includes(wanted), what=f"relay log at {wanted}")


def test_two_tasks_of_a_set_share_one_connection(
    source_set: DatabaseSet,
    document: SetDocument,
    tmp_path: Path,
) -> None:
    """The second task attaches to the first one's stream; the last task closes it."""
    # a stalling machine loses no connection
    document = replace(document, upstream=UpstreamRules(silence_s=3 * PATIENT_S))
    streams = Upstreams(Site(root=tmp_path / "relay"))
    with streams.attach("a", document, wanted=None) as first:
        with streams.attach("b", document, wanted=None) as second:
            assert second is first
            eventually(lambda: first.figures.connects)  # a fresh source has nothing to wait for
            _wait_for_source(first, source_set)
            assert first.figures.connects == 1
        first.check()
    with streams.attach("a", document, wanted=None) as third:
        assert third is not first


def test_all_tasks_release_a_failed_stream_before_a_new_one(
    document: SetDocument, tmp_path: Path
) -> None:
    """The relay directory has one writer: a task that attaches before the release gets the failed stream's error."""
    streams = Upstreams(Site(root=tmp_path / "relay"))
    error = Retryable("MR-1006", "the connection was lost")
    with streams.attach("a", document, wanted=None) as stream:
        stream.fail(error)
        with pytest.raises(Retryable, match="lost"), streams.attach("b", document, wanted=None):
            pytest.fail("attached to a failed stream")
        with pytest.raises(Retryable, match="lost"):
            stream.check()
    with streams.attach("b", document, wanted=None) as fresh:
        fresh.check()


def test_task_needing_an_earlier_position_restarts_all_tasks_there(
    source_set: DatabaseSet, document: SetDocument, tmp_path: Path
) -> None:
    """A relay log that begins too late for one task is started again at the earliest position that is needed."""
    source_set.execute("CREATE DATABASE IF NOT EXISTS earlier")
    source_set.execute("FLUSH BINARY LOGS")
    source_set.execute("DROP DATABASE earlier")
    late = position_of(source_set.primary)
    early = parse_gtid_set(late.flavour, "")
    streams = Upstreams(Site(root=tmp_path / "relay"))
    with streams.attach("late", document, wanted=late) as stream:
        _wait_for_source(stream, source_set)
        with (
            pytest.raises(Retryable, match="MR-1034"),
            streams.attach("early", document, wanted=early),
        ):
            pytest.fail("attached to a stream that begins too late")
        with pytest.raises(Retryable, match="MR-1034"):
            stream.check()
    with streams.attach("late", document, wanted=late) as stream:
        _wait_for_source(stream, source_set)
        with stream.reader() as reader:
            eventually(lambda: reader.seek(early) is not None, what="the earlier position")


@pytest.mark.parametrize("is_there", [True, pytest.param(False, marks=pytest.mark.chaos)])
def test_prepared_transaction_before_the_relay_log_is_fetched_again(
    source_set: DatabaseSet,
    document: SetDocument,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_there: bool,
) -> None:
    """A task starts after its XA PREPARE, in a later file; all tasks restart at the prepare, which may be purged."""
    if not is_there:
        monkeypatch.setattr(XaGroups, "find_committed", lambda *_: None)
    with session(source_set.primary) as one, session(source_set.primary) as other:
        one.execute("CREATE DATABASE prepared")
        one.execute("CREATE TABLE prepared.t (id INT PRIMARY KEY)")
        for statement in ("START 'p'", "END 'p'", "PREPARE 'p'"):
            one.execute(f"XA {statement}")
            if statement == "START 'p'":
                one.execute("INSERT INTO prepared.t VALUES (1), (2)")
        for number in (3, 4):
            other.execute("FLUSH BINARY LOGS")
            other.execute(f"INSERT INTO prepared.t VALUES ({number})")
        progress = Progress(position_of(source_set.primary), None, 0)
        streams = Upstreams(Site(root=tmp_path / "relay"))
        tables = TableFilter(include=("prepared.*",))
        with MemoryCapture(streams, document, tables, progress) as capture:
            eventually(lambda: len(capture.members) == 1, what="attached")
            one.execute("XA COMMIT 'p'")
            other.execute("INSERT INTO prepared.t VALUES (5)")
            eventually(lambda: len(capture.rows) == 3 or not capture.is_alive, what="its rows")
        one.execute("DROP DATABASE prepared")
    assert [error.code for error in capture.errors] == ["MR-6511"]
    if is_there:
        assert capture.error is None
        assert [row.key for row in capture.rows] == [{"id": n} for n in (1, 2, 5)]
    else:
        assert isinstance(capture.error, Fatal)
        assert (capture.error.code, capture.rows) == ("MR-6511", [])


@pytest.mark.chaos
def test_ddl_with_other_case_is_captured_on_folding_sources(
    new_server: NewServer, tmp_path: Path
) -> None:
    """Member selection reads the setting (on MariaDB; MySQL allows it only with a new data directory)."""
    folds = ServerOptions(extra=("--lower-case-table-names=1",))
    server = new_server(Flavour.MARIADB, options=folds)
    secret = tmp_path / "password"
    secret.write_text(server.password)
    account = Account(server.user, SecretReference(SecretPlace.FILE, str(secret)))
    document = SetDocument(
        name="folded", members=(member_of(server),), account=account, tls=UNVERIFIED
    )
    progress = Progress(position_of(server), None, 0)
    streams, tables = Upstreams(Site(root=tmp_path / "relay")), TableFilter(include=("shop.*",))
    with MemoryCapture(streams, document, tables, progress) as capture:
        server.execute("CREATE DATABASE shop")
        server.execute("CREATE TABLE Shop.T (id INT PRIMARY KEY)")
        server.execute("INSERT INTO SHOP.T VALUES (1)")
        server.execute("TRUNCATE TABLE Shop.T")
        server.execute("INSERT INTO shop.t VALUES (2)")
        eventually(lambda: len(capture.rows) == 2 or not capture.is_alive, what="two rows")
    assert capture.error is None
    assert {row.source.table for row in capture.rows} == {"t"}
    # seqs count three statements; rows are on both sides of the last
    assert [row.source.seq for row in capture.rows] == [3, 5]


def test_expired_relay_files_are_purged_while_a_task_runs(
    source_set: DatabaseSet,
    document: SetDocument,
    tmp_path: Path,
) -> None:
    """Old files that no task holds are deleted, as soon as ZooKeeper answers; the active one stays."""
    streams = Upstreams(Site(root=tmp_path / "relay"))
    with streams.attach("a", document, wanted=None) as stream:
        source_set.execute("FLUSH BINARY LOGS")
        _wait_for_source(stream, source_set)
        eventually(lambda: len(stream.relay.list_files()) > 1, what="a second relay file")
        oldest = stream.relay.list_files()[0]
        os.utime(stream.relay.root / str(oldest[0]) / oldest[1], (0, 0))

        stream.purge_if_due(lambda: None)  # the tasks' positions are unknown

        def is_purged() -> bool:
            stream.purge_if_due(dict)
            return oldest not in stream.relay.list_files()

        eventually(is_purged, what=f"{oldest[1]} is purged")
        assert stream.relay.list_files()


def _purging(
    stream: Upstream, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """Run the command while a task's loop runs; return its exit code and output."""
    stop = threading.Event()

    def loop() -> None:
        while not stop.wait(0.01):
            stream.purge_if_due(dict)

    worker = threading.Thread(target=loop)
    worker.start()
    try:
        code = cli.run(["relay", "purge", "shared", *arguments])
    finally:
        stop.set()
        worker.join()
    return code, "".join(capsys.readouterr())


def test_relay_purge_command_stops_at_unpublished_files(
    source_set: DatabaseSet,
    document: SetDocument,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker purges and keeps what a task holds; a reconnect does not fetch purged files again."""
    monkeypatch.setattr(set_stream, "REQUEST_INTERVAL_S", 0.0)
    folder = ["--relay-dir", str(tmp_path / "relay")]
    assert cli.run(["relay", "purge", "shared", *folder]) == 4
    assert "MR-2012" in capsys.readouterr().err
    before = position_of(source_set.primary)
    streams = Upstreams(Site(root=tmp_path / "relay"))
    with streams.attach("a", document, wanted=before) as stream, stream.reader() as reader:
        for _ in range(4):
            source_set.execute("CREATE DATABASE purged")
            source_set.execute("DROP DATABASE purged")
            source_set.execute("FLUSH BINARY LOGS")
        _wait_for_source(stream, source_set)
        eventually(lambda: len(stream.relay.list_files()) >= 5, what="five relay files")
        files = stream.relay.list_files()
        names = [name for _, name in files]
        with stream.reader():  # a task that has not started to read
            code, output = _purging(stream, folder, capsys)
            assert (code, len(stream.relay.list_files())) == (0, len(files)), output
        assert reader.seek(before) is not None  # from here on it is held

        code, output = _purging(stream, folder, capsys)
        assert (code, len(stream.relay.list_files())) == (0, len(files)), output
        assert output.startswith("0 files deleted")

        reader.release(Coordinates(str(files[3][0]), names[3], 4))
        code, output = _purging(stream, [*folder, "--until", names[2]], capsys)
        assert (code, [name for _, name in stream.relay.list_files()]) == (0, names[2:]), output
        code, output = _purging(stream, [*folder, "--older-than-h", "1"], capsys)
        assert (code, [name for _, name in stream.relay.list_files()]) == (0, names[2:]), output
        code, output = _purging(stream, [*folder, "--json"], capsys)
        assert json.loads(output.splitlines()[0])["oldest"] == f"{files[3][0]}/{names[3]}"
        assert [name for _, name in stream.relay.list_files()] == names[3:]

        code, output = _purging(stream, [*folder, "--until", names[0]], capsys)
        assert code == 4
        assert "MR-2013" in output

        (stream.relay.root / "purge.request").write_text("{garbage")
        stream.purge_if_due(dict)
        before_it = stream.figures.connects
        kill_dumps(source_set.primary)
        eventually(lambda: stream.figures.connects > before_it, what="a second connection")
        source_set.execute("FLUSH BINARY LOGS")
        eventually(lambda: len(stream.relay.list_files()) > len(names) - 3, what="one more file")
        assert {subdir for subdir, _ in stream.relay.list_files()} == {files[0][0]}
        assert [name for _, name in stream.relay.list_files()][: len(names) - 3] == names[3:]


def test_relay_purge_by_sub_directory_and_by_evicted_task(
    source_set: DatabaseSet,
    document: SetDocument,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DM's options; an evicted task stops with MR-2014, and reads again from the source when it is resumed."""
    monkeypatch.setattr(set_stream, "REQUEST_INTERVAL_S", 0.0)
    folder = ["--relay-dir", str(tmp_path / "relay")]
    before = position_of(source_set.primary)
    streams = Upstreams(Site(root=tmp_path / "relay"))
    source_set.execute("FLUSH BINARY LOGS")
    with (
        streams.attach("keeper", document, wanted=before) as stream,
        stream.reader("keeper") as keeper,
    ):
        for _ in range(3):
            source_set.execute("CREATE DATABASE purged")
            source_set.execute("DROP DATABASE purged")
            source_set.execute("FLUSH BINARY LOGS")
        _wait_for_source(stream, source_set)
        eventually(lambda: len(stream.relay.list_files()) >= 4, what="four relay files")
        (subdir, *_), names = zip(*stream.relay.list_files(), strict=True)
        keeper.release(Coordinates(str(subdir), names[-1], 4))

        def attach_late() -> None:
            with (
                streams.attach("late", document, wanted=before) as same,
                same.reader("late") as reader,
            ):
                reader.release(Coordinates(str(subdir), names[0], 4))
                code, output = _purging(same, [*folder, "--evict", "lat"], capsys)
                assert (code, "MR-2015" in output) == (4, True)
                code, output = _purging(same, folder, capsys)
                assert output.startswith("0 files deleted")
                arguments = ["--filename", names[1], "--sub-dir", str(subdir), "--evict", "late"]
                code, output = _purging(same, [*folder, *arguments, "--json"], capsys)
                answer = json.loads(output.splitlines()[0])
                assert answer["deleted"] == [f"{subdir}/{names[0]}"]
                assert answer["evicted"] == {"late": ""}
                reader.wait(Coordinates(str(subdir), names[1], 4), 0)

        with pytest.raises(Fatal, match="late was evicted") as caught:
            attach_late()
        assert caught.value.code == "MR-2014"
        stream.check()  # the other task continues
        with pytest.raises(Retryable) as restarted:
            streams.attach("late", document, wanted=before).__enter__()
        assert restarted.value.code == "MR-1034"  # it was reported, so the task wants to read again

        code, output = _purging(stream, [*folder, "--inactive"], capsys)
        assert (code, output.startswith("0 files deleted")) == (0, True)
        code, output = _purging(stream, [*folder, "--sub-dir", "no.000001"], capsys)
        assert (code, "MR-2013" in output) == (4, True)
        code, output = _purging(stream, [*folder, "--inactive", "--filename", names[1]], capsys)
        assert (code, "exclude each other" in output) == (4, True)


def test_compressed_relay_files_are_the_servers_files(
    source_set: DatabaseSet,
    document: SetDocument,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Closed files are compressed beside the stream; a reader gets the server's bytes, also after a restart."""
    monkeypatch.setattr("millrace.producer.relay.compression.INTERVAL_S", 0.02)
    zstd = replace(document, relay=RelayRules(compress=Compression.ZSTD))
    before = position_of(source_set.primary)
    source_set.execute("FLUSH BINARY LOGS")
    for _ in range(2):
        with Upstreams(Site(root=tmp_path / "relay")).attach("a", zstd, wanted=before) as stream:
            source_set.execute("CREATE DATABASE packed")
            source_set.execute("DROP DATABASE packed")
            active = flush(source_set.primary)
            _wait_for_source(stream, source_set)

            def is_packed(stream: Upstream = stream, active: str = active) -> bool:
                (subdir, *_), names = zip(*stream.relay.list_files(), strict=True)
                stored = [path.name for path in (stream.relay.root / str(subdir)).iterdir()]
                return names[-1] == active and all(f"{name}.zst" in stored for name in names[:-1])

            eventually(is_packed, what="every closed file is compressed")
            seen = read_everything(stream.relay)
            for key, payload in list(seen.items())[:-1]:
                name = key.rpartition("/")[2]
                assert payload == (source_set.primary.binlog_dir / name).read_bytes()[4:]
    assert len(seen) >= 3


def test_removed_relay_file_makes_all_tasks_reopen_the_log(
    source_set: DatabaseSet, document: SetDocument, tmp_path: Path
) -> None:
    """The task that finds the file missing ends both streams; then the file is fetched again."""
    before = position_of(source_set.primary)
    for _ in range(3):
        source_set.execute("CREATE DATABASE IF NOT EXISTS hole")
        source_set.execute("DROP DATABASE hole")
        source_set.execute("FLUSH BINARY LOGS")
    streams = Upstreams(Site(root=tmp_path / "relay"))
    with streams.attach("other", document, wanted=before) as stream:
        _wait_for_source(stream, source_set)
        eventually(lambda: len(stream.relay.list_files()) >= 4, what="four relay files")
        subdir, name = stream.relay.list_files()[1]
        (stream.relay.root / str(subdir) / name).unlink()
        with (
            pytest.raises(Retryable, match="MR-2011"),
            streams.attach("task", document, wanted=before),
        ):
            read_everything(stream.relay)
        with pytest.raises(Retryable, match="MR-2011"):
            stream.check()
    with streams.attach("task", document, wanted=before) as stream, stream.reader() as reader:
        eventually(
            lambda: reader.seek(before) is not None, what="the position before the removed file"
        )
        _wait_for_source(stream, source_set)
        begin = reader.seek(before)
        assert begin is not None
        assert begin.subdir != str(subdir)


def test_start_at_first_binlog_ignores_an_old_relay_log(
    source_set: DatabaseSet, document: SetDocument, tmp_path: Path
) -> None:
    """The old relay log begins too late: the start waits for the oldest binlog that the source has."""
    source_set.execute("FLUSH BINARY LOGS")
    source_set.execute("CREATE DATABASE IF NOT EXISTS late")
    source_set.execute("DROP DATABASE late")
    source_set.execute("FLUSH BINARY LOGS")
    late = position_of(source_set.primary)
    streams = Upstreams(Site(root=tmp_path / "relay"))
    with streams.attach("late", document, wanted=late) as stream:
        _wait_for_source(stream, source_set)
    with streams.attach("first", document, wanted=None) as stream, stream.reader() as reader:
        found: list[Coordinates] = []

        def is_found() -> bool:
            at = stream.first(reader) if stream.is_verified else None
            found.extend([at] if at is not None else [])
            return at is not None

        eventually(is_found, what="the first position")
        (at,) = found
        oldest = str(source_set.primary.execute("SHOW BINARY LOGS")[0][0])
        assert (at.file, at.subdir[-1]) == (oldest, "2")


@pytest.mark.parametrize("flavour", FLAVOURS, ids=str)
def test_task_of_a_reset_source_reads_only_new_binlogs(
    new_server: NewServer, tmp_path: Path, flavour: Flavour
) -> None:
    """Older content of the relay log is not read until it is compared.

    A reset during a stream ends it: no reader crosses to reused GTIDs, and member selection refuses them.
    """
    server = new_server(flavour)
    secret = tmp_path / "password"
    secret.write_text(server.password)
    document = SetDocument(
        name="reset",
        members=(member_of(server),),
        account=Account(server.user, SecretReference(SecretPlace.FILE, str(secret))),
        tls=UNVERIFIED,
    )
    streams = Upstreams(Site(root=tmp_path / "relay"))
    server.execute("CREATE DATABASE gone")
    with streams.attach("a", document, wanted=None) as stream:
        eventually(lambda: stream.relay.position().includes(position_of(server)))
    _reset(server)
    server.execute("CREATE DATABASE here")
    nothing = Progress(parse_gtid_set(flavour, ""), None, 0)
    with streams.attach("b", document, wanted=None) as stream, stream.reader() as reader:
        begin = wait_for_start(stream, reader, progress=nothing, stop=threading.Event())
        assert begin is not None
        assert begin.subdir.endswith(".000002")
        eventually(lambda: stream.relay.position().includes(position_of(server)))
        assert b"gone" not in reader.read(begin, bytes_max=1 << 20).payload.tobytes()

        done = stream.relay.position()
        _reset(server)
        server.execute("CREATE DATABASE reused")
        eventually(lambda: _is_ended(stream), what="the stream of a source that was reset")
        assert {str(subdir)[-1] for subdir, _ in stream.relay.list_files()} == {"1", "2"}
    _reset(server)
    with (
        pytest.raises(Fatal, match="MR-1033"),
        streams.attach("b", document, wanted=done),
    ):
        pytest.fail("attached to a source without the published transactions")


def _reset(server: DatabaseServer) -> None:
    """Reset the server: its binlog files and GTIDs start again."""
    is_mariadb = server.flavour is Flavour.MARIADB
    server.execute("RESET MASTER" if is_mariadb else "RESET BINARY LOGS AND GTIDS")


def _is_ended(stream: Upstream) -> bool:
    """Whether its tasks are asked to release it."""
    try:
        stream.check()
    except MillraceError as error:  # MR-1043: MySQL reads on in the file that it has deleted
        return error.code in {"MR-1040", "MR-1041", "MR-1043"}
    return False
