"""``millrace grants print [SET | -f FILE]``: the SQL that creates an account with the least privileges.

The statements depend on the flavor, which the first member that answers tells. The privileges are those of
``drivers.mysql.grants``; nothing is executed.
"""

from collections.abc import Sequence

import typer

from millrace.cli.check.scope import (
    Known,
    Scope,
    parse_files,
    scope_of,
    stored_documents,
)
from millrace.drivers.mysql.grants import Role, grantee, needed_grants
from millrace.errors import Fatal, MillraceError
from millrace.schemas.documents import SetDocument
from millrace.schemas.gtid import Flavour

CONNECT_S = 5.0
PASSWORD = "…"  # to replace
DATABASE = "DATABASE"  # to replace, if no task names one

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Print the SQL of the accounts with the least privileges.",
)


@app.callback()
def group() -> None:
    """Print the SQL of the accounts with the least privileges."""


@app.command("print")
def print_grants(
    name: str = typer.Argument("", metavar="SET", help="By default, every set."),
    file: list[str] = typer.Option([], "-f", "--file", help="A set or task document. Repeatable."),
    role: list[Role] = typer.Option(
        [], help="Only this role; by default, those of the set's tasks. Repeatable."
    ),
    flavour: Flavour | None = typer.Option(
        None, "--flavour", help="Ask no server; print the statements of this one."
    ),
    database: list[str] = typer.Option(
        [], help="A database of the topic; by default, those that the tasks name. Repeatable."
    ),
) -> None:
    """Print CREATE USER and the GRANTs of a set's account. Run them on the set's primary."""
    files = parse_files(file)
    stored, _, error = stored_documents(connect_timeout_s=CONNECT_S)
    if error is not None and not file:
        raise error
    scope = scope_of(stored if error is None else Known(), files, [name] if name else [])
    for set_name in scope.sets:
        document = scope.known.sets.get(set_name)
        if document is None:
            raise Fatal("MR-4104", f"set {set_name} is neither in a file nor in ZooKeeper")
        roles = role or scope.roles(set_name)
        print("\n".join(statements(scope, document, roles, flavour or _ask(document), database)))


def statements(
    scope: Scope,
    document: SetDocument,
    roles: Sequence[Role],
    flavour: Flavour,
    databases: list[str],
) -> list[str]:
    """The lines to print for one set; a comment before each GRANT gives its purpose."""
    to = grantee("", document.account.user)
    lines = [
        *_guess(scope, document, roles),
        f"-- set {document.name} ({flavour}), on the primary",
        f"CREATE USER {to} IDENTIFIED BY '{PASSWORD}';",
    ]
    for role in dict.fromkeys(roles):
        named = tuple(databases) or scope.databases(document.name, role)
        for grant in needed_grants(role, flavour, named or (DATABASE,)):
            remark = f"{role}: {grant.reason}"
            if grant.scope == DATABASE and not named:
                remark += "; repeat it for each database"
            lines += [f"-- {remark}", grant.sql(to)]
    return lines


def _guess(scope: Scope, document: SetDocument, roles: Sequence[Role]) -> list[str]:
    """A remark if no task shows what the set is for, and no other role than a source's is given."""
    if scope.users(document.name) or Role.SOURCE not in roles:
        return []
    return [
        f"-- no task uses set {document.name}: these are the grants of a source. For a target: --role target"
    ]


def _ask(document: SetDocument) -> Flavour:
    """The flavor of the first member that answers. The account need not exist yet: then --flavour is needed."""
    from millrace.producer.source.choose.chooser import ask_flavour
    from millrace.producer.source.set_stream import resolve_login

    try:
        return ask_flavour(document.members, resolve_login(document))
    except MillraceError as error:
        raise type(error)(
            error.code,
            error.message,
            fix=f"Add --flavour mysql or --flavour mariadb. Or: {error.fix}",
        ) from error
