"""`millrace relay list|verify|dump` on relay logs of real servers. Oracles: the servers' files and mysqlbinlog."""

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from millrace import cli
from millrace.deploy.servers import DatabaseServer, DatabaseSet
from millrace.schemas.gtid import Flavour, GtidSet, parse_gtid_set
from tests.kit.binlog.session import session
from tests.kit.relay.compress import compress
from tests.kit.relay.relay import flush_and_wait, position_of, receiving, run_mixed_workload

_NAMES = iter(f"relay_commands_{number}" for number in range(1000))
_HEAD = re.compile(
    r"^# at (\d+)\n#\d+ +\d+:\d+:\d+ server id (\d+) +end_log_pos (\d+) CRC32 0x\w+ \t(.*)$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Scene:
    """A relay log of closed files and the active one; no worker holds it."""

    root: Path
    folder: Path
    names: list[str]
    server: DatabaseServer

    def run(self, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
        """Run a command; return its exit code and standard output."""
        code = cli.run(["relay", words[0], "shop", "--relay-dir", str(self.root), *words[1:]])
        return code, capsys.readouterr().out


@contextmanager
def scene_of(server: DatabaseServer, root: Path) -> Iterator[Scene]:
    """Two rounds of changes, each in closed files, which are compressed."""
    database = next(_NAMES)
    with receiving(server, root / "shop") as reception:
        run_mixed_workload(server, database)
        if server.flavour is Flavour.MYSQL:
            with session(server) as cursor:
                cursor.execute("SET SESSION binlog_transaction_compression = ON")
                cursor.execute(
                    f"INSERT INTO {database}.t (a, b) SELECT a, REPEAT('z', 3000) FROM {database}.t"
                )
        reception.wait_for(server)
        names = flush_and_wait(server, reception)
        server.execute(f"DROP database {database}")
        reception.wait_for(server)
        names += flush_and_wait(server, reception)[len(names) :]
        subdir = str(reception.relay.list_files()[0][0])
        compress(reception.relay)
    yield Scene(root, root / "shop" / subdir, names, server)


@pytest.fixture
def scene(source_set: DatabaseSet, tmp_path: Path) -> Iterator[Scene]:
    """A scene on each flavour."""
    with scene_of(source_set.primary, tmp_path) as made:
        yield made


@pytest.fixture
def mysql_scene(mysql_server: DatabaseServer, tmp_path: Path) -> Iterator[Scene]:
    """A scene on MySQL."""
    with scene_of(mysql_server, tmp_path) as made:
        yield made


def events_of(output: str) -> list[dict[str, object]]:
    """The lines of `relay dump --json`."""
    return [json.loads(line) for line in output.splitlines()]


def test_whole_relay_log_is_listed_and_verified(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compressed and plain files; the GTIDs of all files together are those of the server."""
    code, output = scene.run(capsys, "verify", "--json")
    verdict = json.loads(output)
    assert (code, verdict["whole"], verdict["damages"]) == (0, True, []), verdict
    position = parse_gtid_set(scene.server.flavour, verdict["gtid_set"])
    assert position == position_of(scene.server)
    code, output = scene.run(capsys, "list", "--json")
    files = json.loads(output)["files"]
    assert code == 0
    assert [each["file"] for each in files if not each["active"]] == scene.names
    assert [each["packed"] for each in files] == [True] * (len(files) - 1) + [False]
    assert all(each["first_gtid"] for each in files if each["gtids"])
    code, output = scene.run(capsys, "list")
    assert (code, output.count("packed")) == (0, len(files) - 1)


def test_raw_dump_is_the_servers_file(
    scene: Scene, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Of one file: every byte. From its middle: the magic, the format description and the rest."""
    folder = ["--relay-dir", str(scene.root)]
    name, following = scene.names[0], scene.names[1]
    whole = (scene.server.binlog_dir / name).read_bytes()
    arguments = ["relay", "dump", "shop", *folder, "--raw", "--from", name, "--to", following]
    assert cli.run(arguments) == 0
    assert capsysbinary.readouterr().out == whole
    ends = [4]
    while ends[-1] < len(whole):
        ends.append(ends[-1] + int.from_bytes(whole[ends[-1] + 9 : ends[-1] + 13], "little"))
    place = ends[len(ends) // 2]
    arguments[arguments.index(name)] = f"{name}:{place}"
    assert cli.run(arguments) == 0
    assert capsysbinary.readouterr().out == whole[: ends[1]] + whole[place:]


def test_dump_agrees_with_mysqlbinlog(
    mysql_scene: Scene, mysqlbinlog: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Positions, server ids, types and row counts of every event, also inside compressed payloads."""
    scene = mysql_scene
    for name, following in zip(scene.names, scene.names[1:], strict=False):
        code, output = scene.run(capsys, "dump", "--json", "--from", name, "--to", following)
        assert code == 0
        events = events_of(output)
        file = scene.server.binlog_dir / name
        text = subprocess.check_output(
            [mysqlbinlog, "-vv", "--base64-output=DECODE-ROWS", file],
            text=True,
            errors="backslashreplace",  # it prints bytes of rows
        )
        heads = [tuple(map(int, found[:3])) for found in _HEAD.findall(text)]
        outside = [event for event in events if "inside" not in event]
        ours = [(event["pos"], event["server_id"], event["end_pos"]) for event in outside]
        assert [head for head in heads if head in ours] == ours
        assert {head[0] for head in heads} == {head[0] for head in ours}
        rows = sum(int(str(event.get("rows", 0))) for event in events)
        assert rows == len(re.findall(r"^### (?:INSERT|UPDATE|DELETE)", text, re.MULTILINE))
        tables = Counter(event["table"] for event in events if event["type"] == "Table_map")
        told = re.findall(r"Table_map: `(.*?)`\.`(.*?)` mapped", text)
        assert tables == Counter(f"{database}.{table}" for database, table in told)


def test_dump_of_gtids_has_only_them(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """One source transaction of a set, and the events outside transactions."""
    code, output = scene.run(capsys, "dump", "--json")
    assert code == 0
    gtids = [str(event["gtid"]) for event in events_of(output) if "gtid" in event]
    wanted = gtids[len(gtids) // 2]
    code, output = scene.run(capsys, "dump", "--json", "--gtid", wanted)
    found = [str(event["gtid"]) for event in events_of(output) if "gtid" in event]
    assert found == [wanted]


def test_damage_is_named_with_place_and_gtids(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    """A flipped bit in a plain file: the event's position, and the transactions from there to the next file."""
    code, output = scene.run(capsys, "dump", "--json", "--from", scene.names[0])
    events = [event for event in events_of(output) if event["file"] == scene.names[0]]
    gtids = [event for event in events if "gtid" in event]
    victim = gtids[len(gtids) // 2]
    packed = scene.folder / f"{scene.names[0]}.zst"
    content = bytearray((scene.server.binlog_dir / scene.names[0]).read_bytes())
    content[int(str(victim["pos"])) + 25] ^= 1
    packed.unlink()
    (scene.folder / scene.names[0]).write_bytes(content)
    code, output = scene.run(capsys, "verify", "--json")
    assert code == 1
    (damage,) = json.loads(output)["damages"]
    assert (damage["file"], damage["pos"]) == (scene.names[0], victim["pos"])
    assert damage["why"] == "a wrong checksum"
    lost = [str(event["gtid"]) for event in gtids[gtids.index(victim) :]]
    if scene.server.flavour is Flavour.MYSQL:
        assert damage["gtids"] == str(GtidSet.parse(",".join(lost)))
    else:
        before = str(gtids[gtids.index(victim) - 1]["gtid"])
        assert damage["gtids"] == f"({before} to {lost[-1]}]"


def test_listing_a_set_without_a_relay_log_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong directory is not an empty relay log."""
    for command in ("list", "verify", "dump"):
        assert cli.run(["relay", command, "shop", "--relay-dir", str(tmp_path)]) == 4
        assert "MR-2013" in capsys.readouterr().err
