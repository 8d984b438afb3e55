"""``millrace try`` from the wheel with the base dependencies, in an empty home: it needs only the server."""

import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from millrace.deploy.package.bundle import build_wheel
from millrace.deploy.servers import DatabaseServer, ServerOptions
from millrace.schemas.gtid import Flavour
from tests.fixtures.servers import NewServer
from tests.kit.binlog.session import session
from tests.kit.waiting import eventually

COMPILED_S = 600.0
TRIED_S = 120.0
# of the extras, and this checkout itself
LEFT_OUT = ("pyspark", "pandas", "pymysqlreplication", "millrace", "_editable", "__editable")
# Python reads this module at its start. It notes each address that the process connects to or looks up.
NOTES = """
import os, sys
notes = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def note(event, arguments):
    if event == "socket.connect":
        os.write(notes, f"{arguments[1]}\\n".encode())
    elif event == "socket.getaddrinfo" and arguments[0] != "127.0.0.1":
        os.write(notes, f"{arguments}\\n".encode())
    elif event == "import" and arguments[0].partition(".")[0] in ("confluent_kafka", "kazoo", "pyspark"):
        os.write(notes, f"{arguments[0]}\\n".encode())
    elif event in ("os.exec", "subprocess.Popen"):
        os.write(notes, b"" if arguments[0] == sys.executable else f"{arguments[0]}\\n".encode())

sys.addaudithook(note)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a virtual environment with the wheel, and links to what it depends on."""
    folder = tmp_path_factory.mktemp("alone")
    command = (sys.executable, "-m", "venv", "--without-pip", folder / "venv")
    subprocess.run(command, check=True, timeout=TRIED_S)
    packages = next((folder / "venv" / "lib").glob("python*")) / "site-packages"
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(LEFT_OUT) and path.suffix != ".pth":
            (packages / path.name).symlink_to(path)
    with zipfile.ZipFile(build_wheel(folder)) as wheel:
        wheel.extractall(packages)
    (packages / "sitecustomize.py").write_text(NOTES)
    return folder / "venv" / "bin" / "python"


def tried(
    python: Path, server: DatabaseServer, folder: Path, options: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    """The command in an empty folder, without Java on its PATH and with this home."""
    url = f"mysql://{server.user}@127.0.0.1:{server.port}/alone"
    environment = {
        "PATH": str(folder / "nothing"),
        "HOME": str(folder / "home"),
        "MILLRACE_HOME": str(folder / "millrace"),
        "MYSQL_PWD": server.password,
        "NOTES": str(folder / "notes"),
    }
    (folder / "home").mkdir(exist_ok=True)
    return subprocess.run(
        (python, "-m", "millrace", "try", url, *options),
        cwd=folder / "home",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=TRIED_S,
    )


@pytest.mark.parametrize(
    ("flavour", "release"), [(Flavour.MYSQL, ""), (Flavour.MARIADB, "11.8")], ids=str
)
def test_look_needs_nothing_but_the_server(
    python: Path, new_server: NewServer, tmp_path: Path, flavour: Flavour, release: str
) -> None:
    """The Python functions and the machine code show the same rows. No other address is connected to or looked up."""
    server = new_server(flavour, options=ServerOptions(release=release))
    with session(server) as cursor:
        cursor.execute("CREATE DATABASE alone")
        cursor.execute("CREATE TABLE alone.t (id INT PRIMARY KEY, v TEXT, d DECIMAL(9,2), j JSON)")
        after = server.gtid_position()
        cursor.execute("""INSERT INTO alone.t VALUES (1, 'ü 😀', -1.5, '{"a": [1, null]}')""")
        cursor.execute("UPDATE alone.t SET v = NULL WHERE id = 1")
    options = ("--from", after, "-n", "2")
    first = tried(python, server, tmp_path, options)
    assert first.returncode == 0, first.stderr
    inserted, updated = first.stdout.splitlines()
    assert inserted[12:].startswith(" + alone.t id=1  v: ü 😀, d: -1.50, j: ")
    assert updated[12:] == " ~ alone.t id=1  v: ü 😀 → NULL"
    kernels = tmp_path / "millrace" / "kernels"
    eventually(lambda: list(kernels.glob("capture-*.compiled")), timeout_s=COMPILED_S)
    second = tried(python, server, tmp_path, options)
    assert (second.returncode, second.stdout) == (0, first.stdout), second.stderr
    noted = set((tmp_path / "notes").read_text().splitlines())
    assert noted == {f"('127.0.0.1', {server.port})"}
    assert [path.name for path in (tmp_path / "home").iterdir()] == []
