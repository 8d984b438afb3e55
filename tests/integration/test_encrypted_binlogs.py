"""Servers that encrypt their binlog files: the relay log has what the server sends to a replica, which is plain.

The servers' own clients are the oracle for the bytes, and the tables for the rows.
"""

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from millrace.deploy.servers import DatabaseServer, ServerOptions
from millrace.deploy.servers.programs import MARIADB_SUITES, MYSQLD_ENVIRONMENT, mariadb_programs
from millrace.home_folder import home
from millrace.producer.source.choose.choice import choose
from millrace.producer.source.choose.chooser import ask_members
from millrace.schemas.gtid import Flavour
from tests.fixtures.servers import SMALL, NewServer
from tests.kit.capture.converter import Conversion, FileReader
from tests.kit.relay.relay import (
    flush_and_wait,
    login_of,
    member_of,
    receiving,
    relay_file,
    run_mixed_workload,
)

# MariaDB stores these bytes of a file unencrypted: then come the flags of the event that begins encryption
MARIADB_PLAIN_BYTES = 256 + 17
MYSQL_HEADER_BYTES = 512  # before the encrypted file
Files = dict[str, tuple[bytes, bytes]]  # received and stored


@pytest.mark.parametrize("release", MARIADB_SUITES)
def test_encrypted_binlog_of_mariadb_is_read(
    new_server: NewServer, tmp_path: Path, release: str
) -> None:
    """Each event is at its position in the server's file."""
    keys = tmp_path / "keys"
    keys.write_text("1;" + "ab" * 16 + "\n")
    options = ("--plugin-load-add=file_key_management", f"--file-key-management-filename={keys}")
    server = new_server(
        Flavour.MARIADB,
        options=ServerOptions(release=release, extra=(*options, "--encrypt-binlog=ON")),
    )
    client = (str(mariadb_programs(release).mariadb_binlog), "--no-defaults", "--skip-ssl")
    for received, stored in _read(server, client, tmp_path).values():
        assert len(received) == len(stored)
        assert received[:MARIADB_PLAIN_BYTES] == stored[:MARIADB_PLAIN_BYTES]


def test_encrypted_binlog_of_mysql_is_read(
    new_server: NewServer, tmp_path: Path, mysqlbinlog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positions do not count the header of the encrypted file."""
    plugins = _with_key_ring(tmp_path)
    monkeypatch.setenv(MYSQLD_ENVIRONMENT, str(tmp_path / "mysql" / "mysqld"))
    options = (*SMALL[Flavour.MYSQL], f"--plugin-dir={plugins}", "--binlog-encryption=ON")
    server = new_server(Flavour.MYSQL, options=ServerOptions(extra=options))
    for received, stored in _read(server, (str(mysqlbinlog),), tmp_path).values():
        assert len(received) == len(stored) - MYSQL_HEADER_BYTES


def _read(server: DatabaseServer, client: Sequence[str], folder: Path) -> Files:
    """The closed files of a workload. The server's own client receives the same bytes, and the rows are the table's."""
    choose(ask_members([member_of(server)], login_of(server), wanted=None), wanted=None)
    with receiving(server, folder / "relay", from_first=True) as reception:
        run_mixed_workload(server, "secret")
        reception.wait_for(server)
    with receiving(server, folder / "relay", from_first=True) as reception:
        server.execute("INSERT INTO secret.t (a) VALUES ('after the resumption')")
        reception.wait_for(server)
        paths = {
            name: relay_file(reception.relay, name) for name in flush_and_wait(server, reception)
        }
        assert len(reception.relay.list_files()) == len(paths) + 1, "one sub-directory"
    assert len(paths) > 1
    found: Files = {}
    for name, path in paths.items():
        received, stored = path.read_bytes(), (server.binlog_dir / name).read_bytes()
        assert received == _received_by(client, server, name, folder)
        assert b"secret" in received
        assert b"secret" not in stored
        found[name] = received, stored
    _check_rows(server, path.parent)
    return found


def _check_rows(server: DatabaseServer, folder: Path) -> None:
    rows = Conversion(FileReader.of_server(folder), flavour=server.flavour).rows()
    last: Counter[tuple[object, object]] = Counter()
    for row in rows:
        for image, step in ((row.change.before, -1), (row.change.after, 1)):
            if image is not None and row.source.table == "t":
                last[image["id"], image["a"]] += step
    assert +last == Counter(server.execute("SELECT id, a FROM secret.t"))


def _received_by(client: Sequence[str], server: DatabaseServer, file: str, folder: Path) -> bytes:
    command = [
        *(*client, "--read-from-remote-server", "--raw", f"--result-file={folder}/raw-"),
        *("--host=127.0.0.1", f"--port={server.port}", f"--user={server.user}"),
        *(f"--password={server.password}", file),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return (folder / f"raw-{file}").read_bytes()


def _with_key_ring(folder: Path) -> Path:
    """A copy of the fetched MySQL in ``folder`` that loads a key ring from a file; returns its folder of plug-ins.

    MySQL looks for the list of components beside its program, which other tests share.
    """
    fetched, copy = home() / "mysql", folder / "mysql"
    assert (fetched / "root").is_dir(), "needs the MySQL that `make setup` fetches on Debian"
    program, plugins = copy / "root" / "usr" / "sbin" / "mysqld", copy / "plugins"
    program.parent.mkdir(parents=True)
    plugins.mkdir()
    shutil.copy(fetched / "mysqld", copy / "mysqld")
    shutil.copy(fetched / "root" / "usr" / "sbin" / "mysqld", program)
    for part in ("lib", "share"):
        (copy / "root" / "usr" / part).symlink_to(fetched / "root" / "usr" / part)
    component = "component_keyring_file"
    shutil.copy(copy / "root" / "usr" / "lib" / "mysql" / "plugin" / f"{component}.so", plugins)
    settings = {"path": str(folder / "keyring"), "read_only": False}
    (plugins / f"{component}.cnf").write_text(json.dumps(settings))
    program.with_name("mysqld.my").write_text(json.dumps({"components": f"file://{component}"}))
    return plugins
