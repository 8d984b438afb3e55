"""The SQL client and the dump program that lie beside an embedded server's program."""

from pathlib import Path

from millrace.errors import Fatal


def client_command(
    server: Path, host: str, port: int, *, user: str, authority: str = ""
) -> tuple[str, ...]:
    """Program and options for a server of this program; Fatal MR-8005 when no client lies beside it.

    MariaDB's client would take its own default, utf8mb3, in which a server stores no emoji.

    With an ``authority``, a PEM file, the server's certificate is verified. The password is given as MYSQL_PWD, so that
    no list of processes shows it.
    """
    is_mariadb = server.name == "mariadbd"
    program = server.with_name("mariadb" if is_mariadb else "mysql")
    if not program.is_file():
        raise Fatal("MR-8005", f"no client lies beside {server}: {program} is missing")
    where = (f"--host={host}", f"--port={port}", f"--user={user}", "--protocol=tcp")
    trust = _verified(authority, is_mariadb) if authority else _unverified(is_mariadb)
    return (str(program), "--no-defaults", *where, *trust, "--default-character-set=utf8mb4")


def dump_command(server: Path, host: str, port: int, *, user: str) -> tuple[str, ...]:
    """Program and options of mysqldump for rows of InnoDB tables, as ``client_command``."""
    client, *options = client_command(server, host, port, user=user)
    is_mariadb = server.name == "mariadbd"
    program = Path(client).with_name("mariadb-dump" if is_mariadb else "mysqldump")
    if not program.is_file():
        raise Fatal("MR-8005", f"no dump program lies beside {server}: {program} is missing")
    own = () if is_mariadb else ("--set-gtid-purged=OFF",)
    return (str(program), *options, "--single-transaction", "--quick", "--no-create-info", *own)


def _verified(authority: str, is_mariadb: bool) -> tuple[str, str]:
    verify = "--ssl-verify-server-cert" if is_mariadb else "--ssl-mode=VERIFY_IDENTITY"
    return (f"--ssl-ca={authority}", verify)


def _unverified(is_mariadb: bool) -> tuple[str]:
    """A local server has made its certificate itself."""
    return ("--disable-ssl-verify-server-cert" if is_mariadb else "--ssl-mode=PREFERRED",)
