"""``millrace grants print [SET | -f FILE]``: the SQL that creates an account with the least privileges.

The statements depend on the flavor, which the first member that answers tells. The privileges are those of
``drivers.mysql.grants``; nothing is executed.
"""

import typer

from drivers.mysql.grants import Role, grantee, needed_grants
from millrace.cli.check.scope import (
    Known,
    Scope,
    databases_of,
    parse_files,
    scope_of,
    stored_documents,
)
from millrace.errors import Fatal, MillraceError
from schemas.documents import CaptureTask, SetDocument
from schemas.gtid import Flavour

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
        roles = role or roles_of(scope, document)
        print("\n".join(statements(scope, document, roles, flavour or _ask(document), database)))


def roles_of(scope: Scope, document: SetDocument) -> list[Role]:
    """The roles that the set's tasks need; a set without tasks is taken as a source."""
    found = []
    if scope.is_source(document.name):
        found += [Role.SOURCE, *([Role.HEARTBEAT] if document.heartbeat.database else [])]
        found += [Role.LOAD] if scope.is_loaded(document.name) else []
        found += [Role.COMPARE] if scope.is_compared(document.name) else []
        captures = scope.captures(document.name)
        found += [Role.SNAPSHOT] if any(task.begins_with_rows for task in captures) else []
    if scope.applies(document.name):
        found.append(Role.TARGET)
    return found


def statements(
    scope: Scope,
    document: SetDocument,
    roles: list[Role],
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
        named = tuple(databases) or _databases(scope, document, role)
        for grant in needed_grants(role, flavour, named or (DATABASE,)):
            remark = f"{role}: {grant.reason}"
            if grant.scope == DATABASE and not named:
                remark += "; repeat it for each database"
            lines += [f"-- {remark}", grant.sql(to)]
    return lines


def _guess(scope: Scope, document: SetDocument, roles: list[Role]) -> list[str]:
    """A remark if no task shows what the set is for, and no other role than a source's is given."""
    if scope.users(document.name) or Role.SOURCE not in roles:
        return []
    return [
        f"-- no task uses set {document.name}: these are the grants of a source. For a target: --role target"
    ]


def _databases(scope: Scope, document: SetDocument, role: Role) -> tuple[str, ...]:
    if role is Role.HEARTBEAT:
        return (document.heartbeat.database,) if document.heartbeat.database else ()
    users = scope.users(document.name)
    if role is Role.TARGET:
        return _of_topics(scope, document)
    return databases_of(task for task in users if isinstance(task, CaptureTask)) or databases_of(
        users
    )


def _of_topics(scope: Scope, document: SetDocument) -> tuple[str, ...]:
    """The databases that the apply tasks name, or the capture tasks of their topics."""
    applies = scope.applies(document.name)
    if found := databases_of(applies):
        return found
    captures = [
        task
        for task in scope.known.tasks.values()
        if isinstance(task, CaptureTask)
        and any(task.output.is_same_topic(other.source) for other in applies)
    ]
    return databases_of(captures)


def _ask(document: SetDocument) -> Flavour:
    """The flavor of the first member that answers. The account need not exist yet: then --flavour is needed."""
    from producer.source.choose.chooser import ask_flavour
    from producer.source.set_stream import resolve_login

    try:
        return ask_flavour(document.members, resolve_login(document))
    except MillraceError as error:
        raise type(error)(
            error.code,
            error.message,
            fix=f"Add --flavour mysql or --flavour mariadb. Or: {error.fix}",
        ) from error
