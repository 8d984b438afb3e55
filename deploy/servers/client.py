"""The SQL client that lies beside an embedded server's program."""

from pathlib import Path

from millrace.errors import Fatal


def client_command(server: Path, host: str, port: int, *, user: str) -> tuple[str, ...]:
    """Program and options for a server of this program; Fatal MR-8005 when no client lies beside it.

    MariaDB's client would take its own default, utf8mb3, in which a server stores no emoji.

    The password is given as MYSQL_PWD, so that no list of processes shows it.
    """
    is_mariadb = server.name == "mariadbd"
    program = server.with_name("mariadb" if is_mariadb else "mysql")
    if not program.is_file():
        raise Fatal("MR-8005", f"no client lies beside {server}: {program} is missing")
    # a local server has made its certificate itself
    trust = "--disable-ssl-verify-server-cert" if is_mariadb else "--ssl-mode=PREFERRED"
    where = (f"--host={host}", f"--port={port}", f"--user={user}", "--protocol=tcp")
    return (str(program), "--no-defaults", *where, trust, "--default-character-set=utf8mb4")
