"""``history``, ``diff`` and ``rollback`` of a document, for ``millrace set`` and ``millrace task``."""

import json
from collections.abc import Callable
from datetime import UTC, datetime

import typer

from millrace.cli.control import Control, console, control, new_table, print_json
from millrace.errors import Fatal
from millrace.schemas.documents import FieldChange, field_changes, parse_set, parse_task
from millrace.schemas.documents.fields import FOUND_CHARACTERS_MAX, shortened
from millrace.zk.tree.documents import Document, DocumentKey, DocumentKind
from millrace.zk.tree.history import Revision

Plain = dict[str, object]


def add_history(app: typer.Typer, kind: str, key_of: Callable[[str], DocumentKey]) -> None:
    """Add the commands ``history`` and ``diff`` of a kind of document."""

    @app.command(
        help=f"List the former documents of a {kind}: who wrote them, when, by which command."
    )
    def history(
        name: str, json: bool = typer.Option(False, "--json", help="Print one JSON array.")
    ) -> None:
        _show_history(key_of(name), as_json=json)

    @app.command(
        help=f"Show the fields that changed between two revisions of a {kind}.\n\n"
        "Without a revision, the last two are compared; with one, that one and the newest."
    )
    def diff(
        name: str,
        first: int | None = typer.Argument(None, metavar="REV", show_default=False),
        second: int | None = typer.Argument(None, metavar="REV", show_default=False),
        json: bool = typer.Option(False, "--json", help="Print one JSON object."),
    ) -> None:
        _show_diff(key_of(name), first, second, as_json=json)


def _show_history(key: DocumentKey, *, as_json: bool) -> None:
    """Print the revisions of a document, the newest last."""
    with control() as now:
        found = now.store.revisions(key)
    befores = [None, *(revision.document for revision in found)]
    if as_json:
        print_json([_as_plain(before, each) for before, each in zip(befores, found, strict=False)])
        return
    table = new_table("REVISION", "WHEN", "BY", "COMMAND", "CHANGE")
    for before, each in zip(befores, found, strict=False):
        by, command = each.author.by or "unknown", each.author.command or "-"
        table.add_row(str(each.number), shown_time(each.at_ms), by, command, _summary(before, each))
    console().print(table if found else f"{key} was not written since histories are kept")


def _show_diff(key: DocumentKey, first: int | None, second: int | None, *, as_json: bool) -> None:
    """Print the fields that changed between two revisions: by default the last two, or one and the newest."""
    with control() as now:
        found = now.store.revisions(key)
    if len(found) < 2 and first is None:
        what = f"only revision {found[0].number}" if found else "no revision"
        raise _absent(key, f"{key} has {what}, so there is nothing to compare")
    newest = found[-1].number if found else 0
    numbers = (newest - 1, newest) if first is None else (first, second or newest)
    before, after = (_revision(key, found, number) for number in numbers)
    changes = field_changes(before.document or {}, after.document or {})
    if as_json:
        fields = [plain_field(change) for change in changes]
        print_json({"from": before.number, "to": after.number, "fields": fields})
        return
    print(f"{key}: revision {before.number} → {after.number}")
    for line in _lines(before, after, changes):
        print(f"  {line}")


def former_document(now: Control, key: DocumentKey, number: int) -> Document:
    """The document of a revision. Fatal MR-4142 if there is none; MR-4101 if this version refuses it."""
    plain = _revision(key, now.store.revisions(key), number).document
    if plain is None:
        raise _absent(key, f"revision {number} of {key} is its deletion")
    origin = f"revision {number}"
    if key.kind is DocumentKind.SET:
        return parse_set(plain, origin=origin)
    return parse_task(plain, origin=origin)


def _revision(key: DocumentKey, found: tuple[Revision, ...], number: int) -> Revision:
    for revision in found:
        if revision.number == number:
            return revision
    known = f"{found[0].number} to {found[-1].number} are kept" if found else "none is kept"
    raise _absent(key, f"{key} has no revision {number}: {known}")


def _absent(key: DocumentKey, what: str) -> Fatal:
    fix = f"List the revisions with `millrace {key.kind} history {key.name}`."
    return Fatal("MR-4142", what, fix=fix)


def _lines(before: Revision, after: Revision, changes: tuple[FieldChange, ...]) -> list[str]:
    if after.document is None:
        return ["deleted"]
    if before.document is None:
        return ["created again"]
    return [field_line(change) for change in changes] or ["no difference"]


def _summary(before: Plain | None, revision: Revision) -> str:
    if revision.document is None:
        return "deleted"
    if before is None:
        return "created" if revision.number == 1 or revision.author.by else "as it was"
    return ", ".join(change.path for change in field_changes(before, revision.document)) or "none"


def _as_plain(before: Plain | None, revision: Revision) -> Plain:
    is_change = before is not None and revision.document is not None
    changes = field_changes(before or {}, revision.document or {}) if is_change else ()
    return {
        "revision": revision.number,
        "at_ms": revision.at_ms,
        "by": revision.author.by,
        "command": revision.author.command,
        "fields": [plain_field(change) for change in changes],
        "document": revision.document,
    }


def shown_time(at_ms: int) -> str:
    """A Unix time in UTC, to the second."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def field_line(change: FieldChange) -> str:
    """``lanes: 4 → 8``. Of long lists, the entries that came and went; of long texts, the part that differs."""
    before, after = change.before, change.after
    texts = (_text(before), _text(after))
    if max(map(len, texts)) <= FOUND_CHARACTERS_MAX:
        return f"{change.path}: {texts[0]} → {texts[1]}"
    if isinstance(before, list) and isinstance(after, list):
        gone = [entry for entry in before if entry not in after]
        new = [entry for entry in after if entry not in before]
        counts = f"{len(before)} → {len(after)} entries"
        return f"{change.path}: {counts}, without {_short(gone)}, with {_short(new)}"
    return f"{change.path}: {' → '.join(_around_difference(*texts))}"


def plain_field(change: FieldChange) -> dict[str, object]:
    """The field with both values in full; null: not set."""
    return {"field": change.path, "before": change.before, "after": change.after}


def _text(value: object) -> str:
    """The value on one line. A text that a terminal would not show as it is, is escaped."""
    if value is None:
        return "not set"
    if isinstance(value, str):
        return value if value and value.isprintable() else json.dumps(value)
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)


def _short(entries: list[object]) -> str:
    return shortened(_text(entries))


def _around_difference(before: str, after: str) -> tuple[str, str]:
    """Both texts, cut to the place where they begin to differ."""
    pairs = enumerate(zip(before, after, strict=False))
    at = next((index for index, (old, new) in pairs if old != new), min(len(before), len(after)))
    begin = max(0, at - FOUND_CHARACTERS_MAX // 3)
    mark = "…" if begin else ""
    return mark + shortened(before[begin:]), mark + shortened(after[begin:])
