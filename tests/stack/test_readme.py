"""Documents, grants, commands and Python of the README, docs/install.md and docs/first-set.md, with other addresses.

The README's commands for a local stack are in ``test_up.py``. kcat is not run: it is no Python package, and Debian's
may not be on this machine.
"""

import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from millrace.deploy.servers import DatabaseServer, DatabaseSet, KafkaServer, ZooKeeperServer
from millrace.deploy.servers.process import ProcessSpec, ServerProcess, free_port
from millrace.schemas.gtid import Flavour
from tests.fixtures.servers import NewServer, NewSet
from tests.kit.paths import ROOT
from tests.kit.readme import PROGRAM, README, blocks, replaced, shell

INSTALL = "".join((ROOT / "docs" / name).read_text() for name in ("install.md", "first-set.md"))
SERVICES = ("registry", "scheduler", "worker", "apply")
PASSWORD = "of-the-readme"


def grants(flavour: Flavour) -> list[list[str]]:
    """Return the SQL for the source, then for the target."""
    found = re.findall(r"(?:^    \S.*;.*\n)+", INSTALL, re.MULTILINE)
    accounts = [block for block in found if "CREATE USER" in block]
    statements = [block.replace("'…'", f"'{PASSWORD}'").splitlines() for block in accounts]
    return [[_statement(line, flavour) for line in lines] for lines in statements]


def _statement(line: str, flavour: Flavour) -> str:
    statement, _, comment = line.strip().partition(";")
    also = re.search(r"MariaDB also: (.*)", comment)
    if also and flavour is Flavour.MARIADB:
        statement = statement.replace(" ON *.* ", f", {also[1]} ON *.* ")
    return statement


def create_accounts(source: DatabaseSet, target: DatabaseServer) -> None:
    """Replace the fixtures' accounts by the README's, which have no other privileges."""
    for server, statements in zip((source.primary, target), grants(source.flavour), strict=True):
        server.execute("DROP USER millrace")
        for statement in statements:
            server.execute(statement)
    source.wait_for_replicas()


def test_readme_setup_replicates_between_servers_of_the_user(
    new_set: NewSet,
    new_server: NewServer,
    kafka: KafkaServer,
    new_zookeeper: ZooKeeperServer,
    tmp_path: Path,
) -> None:
    """Grants, documents, services and commands of "Your own servers", then the subscriber in Python."""
    source, target = new_set(Flavour.MARIADB), new_server(Flavour.MARIADB)
    create_accounts(source, target)
    source.execute("CREATE DATABASE shop")
    source.execute("CREATE TABLE shop.t (id INT PRIMARY KEY, v TEXT)")
    source.execute("INSERT INTO shop.t VALUES (1, 'hello')")
    (tmp_path / "password").write_text(PASSWORD)
    db1, db2 = source.members
    registry_port = free_port()
    text = replaced(
        INSTALL,
        {
            "zk1:2181,zk2:2181,zk3:2181": f"127.0.0.1:{new_zookeeper.port}",
            "kafka1:9092": kafka.bootstrap,
            "--host registry1": f"--port {registry_port} --topic readme_schemas",
            "registry1:8081": f"127.0.0.1:{registry_port}",
            "{host: db1, port: 3306}": f"{{host: 127.0.0.1, port: {db1.port}}}",
            "{host: db2, port: 3306}": f"{{host: 127.0.0.1, port: {db2.port}}}",
            "{host: wh1, port: 3306}": f"{{host: 127.0.0.1, port: {target.port}}}",
            "/run/secrets/millrace": str(tmp_path / "password"),
            "tls: verify-identity": "tls: disabled",
            "topic: shop": "topic: readme",
            "/var/lib/millrace/relay": str(tmp_path / "relay"),
        },
    )
    names = re.findall(r"`(\w+\.yaml)`, ", text)
    for name, document in zip(names, blocks(text, "yaml"), strict=True):
        (tmp_path / name).write_text(document)
    lines = [line for block in blocks(text, "sh") for line in block.splitlines()]
    exports = dict(line.split(" ")[1].split("=") for line in lines if line.startswith("export "))
    with ExitStack() as running:
        for service in SERVICES:
            (line,) = {line for line in lines if line.startswith(f"millrace {service}")}
            command = (sys.executable, "-m", *shlex.split(line, comments=True))
            spec = ProcessSpec(service, command, tmp_path / service / "log", exports)
            process = ServerProcess(spec)
            process.launch()
            running.callback(process.stop)
        commands = [
            line
            for line in lines
            if line.startswith("millrace ") and line.split()[1] not in (*SERVICES, "ddl")
        ]
        script = f'cd {tmp_path}\nmillrace() {{ PYTHONPATH={ROOT} {PROGRAM} "$@"; }}\n'
        output = shell(script + "\n".join(commands), exports)
        assert target.execute("SELECT * FROM shop.t") == [(1, "hello")]
        assert "1 table" in output
        (program,) = [one for one in blocks(README, "python") if "millrace.client" in one]
        addresses = {"127.0.0.1:9092": kafka.bootstrap, '"shop"': '"readme"'}
        assert first_line(replaced(program, addresses)).endswith(" c t {'id': 1, 'v': 'hello'}")


def first_line(program: str) -> str:
    """Return what a program that runs forever prints first."""
    command = (sys.executable, "-u", "-c", program)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.kill()
    return line.strip()
