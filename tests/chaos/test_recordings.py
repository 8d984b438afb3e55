"""The sessions of docs/first-minute.md, recorded in a terminal with real servers. The site shows the recordings."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from millrace.deploy.site.cast import Session, fits, sessions_of, shape
from millrace.home_folder import STACK, home
from millrace.schemas.gtid import Flavour
from tests.fixtures.servers import NewServer
from tests.kit.local_stack import run_millrace
from tests.kit.paths import ROOT
from tests.kit.recorder import Recorder

PAGE = (ROOT / "docs/first-minute.md").read_text()
SESSIONS = {session.name: session for session in sessions_of(PAGE)}
NAME = "recorded"
PROGRAM = Path(sys.executable).parent
ENVIRONMENT = {
    "PATH": f"{PROGRAM}:/usr/local/bin:/usr/bin:/bin",
    "PYTHONPATH": str(ROOT),
    STACK: NAME,
    "MYSQL_PWD": "of-the-page",
}


def record(
    session: Session, words: dict[str, str], answer: tuple[str, Callable[[], object]] | None = None
) -> None:
    """Run each command of a session; its lines are those of the page. Keep the recording for the site."""
    recorder = Recorder(ENVIRONMENT)
    for command, shown in session.steps():
        for word, own in words.items():
            command = command.replace(word, own)
        output = recorder.run(command, answer)
        assert fits(shown, _plain(output)), f"{command}\n{output}"
    recording = recorder.recording
    assert [shape(one) for one in recording.commands()] == [
        shape(command) for command, _ in session.steps()
    ]
    assert recording.picture().count("<text") == len(recording.text().splitlines())
    folder = home() / "site"
    folder.mkdir(exist_ok=True)
    (folder / f"{session.name}.cast").write_text(recording.cast())


def _plain(output: str) -> str:
    """The output without colors."""
    return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", output).replace("\r\n", "\n")


def test_try_shows_the_lines_of_the_page(new_server: NewServer) -> None:
    """The account has the rights that the page names. The changes are those of the page."""
    server = new_server(Flavour.MARIADB)
    server.execute("CREATE DATABASE shop")
    server.execute(
        "CREATE TABLE shop.orders (id INT PRIMARY KEY, customer VARCHAR(20), price DECIMAL(9, 2))"
    )
    server.execute("CREATE USER me IDENTIFIED BY 'of-the-page'")
    server.execute("GRANT REPLICATION SLAVE, BINLOG MONITOR, SLAVE MONITOR ON *.* TO me")
    (changes,) = re.findall(r"^```sql\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)

    def change() -> None:
        for statement in changes.split(";\n")[:-1]:
            server.execute(statement)

    record(SESSIONS["try"], {"3306": str(server.port)}, ("Ctrl-C ends it", change))


@pytest.mark.timeout(3600)
def test_stack_survives_the_kill_of_the_page() -> None:
    """One stack for both sessions; the second one ends it."""
    run_millrace("down", **{STACK: NAME})
    try:
        record(SESSIONS["stack"], {})
        record(SESSIONS["kill"], {})
    finally:
        run_millrace("down", **{STACK: NAME})
