"""Tasks of DM (TiDB Data Migration): a task file, with the files of its sources beside it.

Each source becomes a set, a capture task and an apply task, and the target a set.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from millrace.schemas.moving.draft import (
    UNKNOWN,
    Draft,
    Left,
    Plain,
    Settings,
    SetTopic,
    brokers_of,
    left,
    name_of,
    password_of,
    registry_of,
    tables,
    tables_of,
)

_ANSWERS: Mapping[str, str] = MappingProxyType(
    {
        "route-rules": "`to` in rules of the apply task (docs/views.md): no load, comparison or DDL yet",
        "routes": "`to` in rules of the apply task (docs/views.md): no load, comparison or DDL yet",
        "filter-rules": "nothing: every change and statement of a task's tables is applied",
        "filters": "nothing: every change and statement of a task's tables is applied",
        "expression-filter": "`where` in rules of the apply task (docs/views.md): no load, comparison or DDL yet",
        "expression-filters": "`where` in rules of the apply task (docs/views.md): no load, comparison or DDL yet",
        "column-mapping-rules": "nothing: values are copied as they are, or masked (docs/views.md)",
        "column-mappings": "nothing: values are copied as they are, or masked (docs/views.md)",
        "is-sharding": "nothing in this version: shards are not merged on a target set",
        "shard-mode": "nothing in this version: shards are not merged on a target set",
        "strict-optimistic-shard-mode": "nothing in this version: shards are not merged on a target set",
        "online-ddl": "nothing: ghost tables are tables; `exclude` leaves them out",
        "online-ddl-scheme": "nothing: ghost tables are tables; `exclude` leaves them out",
        "shadow-table-rules": "`exclude` of the tasks",
        "trash-table-rules": "`exclude` of the tasks",
        "timezone": "nothing: sessions on the target have the time zone of the row's session",
        "tidb": "nothing: `lanes` and `consistency` of the apply task",
        "validators": "`compare: {every_h: 24}` of the apply task compares all rows at this interval",
        "meta": "`start` of the apply task: a GTID set; other members have other files and positions",
        "session": "nothing: sessions have fixed settings",
        "case-sensitive": "nothing: patterns are as case-sensitive as the source's names",
    }
)
_NEEDLESS = frozenset(
    {
        "remove-meta",
        "enable-heartbeat",
        "heartbeat-update-interval",
        "heartbeat-report-interval",
        "meta-schema",
        "clean-dump-file",
        "ignore-checking-items",
        "collation_compatible",
        "ansi-quotes",
        "experimental",
        "mydumpers",
        "loaders",
        "syncers",
        "mydumper-config-name",
        "loader-config-name",
        "syncer-config-name",
        "mydumper-thread",
        "loader-thread",
        "syncer-thread",
        "mydumper",
        "loader",
        "syncer",
        "validator-config-name",
    }
)


def draft_of_dm(task: Mapping[str, object], sources: Sequence[Mapping[str, object]]) -> Draft:
    """The documents of one task. ``sources``: the files of its sources, by ``source-id``."""
    draft = Draft("DM")
    settings = Settings({})
    fields = dict(task)
    name = name_of(str(fields.pop("name", "")), "dm")
    mode = str(fields.pop("task-mode", "all"))
    target = f"{name}-target"
    draft.documents = [_set(target, _mapping(fields.pop("target-database", {})), settings)]
    kafka, registry = brokers_of("", settings), registry_of("", settings)
    lists = _mapping(fields.pop("block-allow-list", fields.pop("black-white-list", {})))
    places = {str(source.get("source-id")): _mapping(source.get("from")) for source in sources}
    instances = fields.pop("mysql-instances", [])
    for instance in instances if isinstance(instances, list) else []:
        own = _mapping(instance)
        identity = str(own.pop("source-id", "source"))
        source = name_of(identity, "source")
        if identity not in places:
            settings.to_fill.append(
                f"the server of the set {source}: the file of source {identity} was not given"
            )
        list_name = own.pop("block-allow-list", own.pop("black-white-list", ""))
        patterns = _tables(_mapping(lists.get(str(list_name))), settings)
        shared = SetTopic(f"{source}.{name}", kafka, registry)
        draft.documents += [
            _set(source, places.get(identity, {}), settings),
            shared.capture(f"{source}-{name}-capture", source, patterns),
            shared.reader(
                f"{source}-{name}",
                "apply",
                {"target": target, **_start(mode, _mapping(own.get("meta")), settings)},
            ),
        ]
        if not _mapping(own.get("meta")) or mode == "all":
            own.pop("meta", None)
        draft.left += _rest(f"mysql-instances[{identity}].", own)
    draft.left += [*_rest("", fields), *settings.rest({})]
    draft.to_fill = settings.to_fill
    return draft


def _mapping(value: object) -> dict[str, object]:
    return {str(key): part for key, part in value.items()} if isinstance(value, dict) else {}


def _rest(path: str, fields: Mapping[str, object]) -> list[Left]:
    return [
        left(f"{path}{name}", str(value), _ANSWERS.get(name, UNKNOWN))
        for name, value in fields.items()
        if name not in _NEEDLESS and value not in (None, "", False, [], {})
    ]


def _set(name: str, place: Mapping[str, object], settings: Settings) -> Plain:
    port = place.get("port", 3306)
    password = password_of(str(place.get("password", "")), name, settings)
    if security := place.get("security"):
        settings.leave(f"{name}.security", str(security), "`tls` and `tls_ca` of the set")
    if session := place.get("session"):
        settings.leave(f"{name}.session", str(session), _ANSWERS["session"])
    return {
        "set": name,
        "members": [{"host": str(place.get("host", "localhost")), "port": port}],
        "user": str(place.get("user", "root")),
        "password": password,
    }


def _tables(rules: Mapping[str, object], settings: Settings) -> Plain:
    include, exclude = (
        [
            *tables_of(f"{word}-tables", _names(rules.get(f"{word}-tables")), settings),
            *tables_of(f"{word}-dbs", _databases(rules.get(f"{word}-dbs")), settings),
        ]
        for word in ("do", "ignore")
    )
    if rules.get("do-tables") and rules.get("do-dbs"):  # a table must be in both
        include = tables_of("do-tables", _names(rules.get("do-tables")), settings)
    return tables(include, exclude, is_chosen=settings.is_left("do-tables", "do-dbs"))


def _names(value: object) -> list[str]:
    each = [_mapping(part) for part in value] if isinstance(value, list) else []
    return [
        f"{_expression(part.get('db-name'))}[.]{_expression(part.get('tbl-name'))}" for part in each
    ]


def _databases(value: object) -> list[str]:
    return [f"{_expression(part)}[.].*" for part in value] if isinstance(value, list) else []


def _expression(name: object) -> str:
    """DM's expressions begin with ``~``; other names have ``*`` and ``?``. As one that matches a whole name."""
    text = str(name if name is not None else "*")
    if not text.startswith("~"):
        return "".join(
            {"*": ".*", "?": "[?]", ".": "[.]"}.get(c, c if c.isalnum() or c == "_" else f"\\{c}")
            for c in text
        )
    text = text[1:]
    start = "" if text.startswith("^") else ".*"
    end = "" if text.endswith(("$", "*")) else ".*"
    return f"{start}({text.removeprefix('^').removesuffix('$')}){end}"


def _literal(character: str) -> str:
    """One character of a name with wildcards, as an expression."""
    if character == "*":
        return ".*"
    return character if character.isalnum() or character == "_" else f"\\{character}"


def _start(mode: str, meta: Mapping[str, object], settings: Settings) -> Plain:
    if mode == "all":
        return {"start": "load"}
    if mode == "full":
        settings.leave("task-mode", mode, "`start: load` copies the rows, then applies the changes")
        return {"start": "load"}
    gtid = meta.get("binlog-gtid")
    if gtid:
        return {"start": str(gtid)}
    settings.to_fill.append(
        "`start` of the apply task: the GTID set up to which the target has everything"
    )
    return {"start": "first"}
