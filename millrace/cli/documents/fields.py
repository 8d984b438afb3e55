"""A changed field of a document, for people and for scripts."""

import json

from schemas.documents import FieldChange
from schemas.documents.fields import FOUND_CHARACTERS_MAX, shortened


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
