"""Apart: Java has rules for its property files: ``name=value``, ``name: value``, comments, escapes, continued lines."""

import re

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)


def read_properties(text: str) -> dict[str, str]:
    """All properties; a later one replaces an earlier one of the same name."""
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _LINE.fullmatch(line)
        if match and match[1]:
            properties[_plain(match[1])] = _plain(match[2])
    return properties


def _logical_lines(text: str) -> list[str]:
    lines, begun = [], ""
    for line in text.splitlines():
        part = line.lstrip() if begun or not line.lstrip().startswith(("#", "!")) else ""
        begun += part
        if (len(begun) - len(begun.rstrip("\\"))) % 2:
            begun = begun[:-1]
            continue
        lines.append(begun)
        begun = ""
    return [line for line in [*lines, begun] if line]


def _plain(text: str) -> str:
    return _ESCAPE.sub(_character, text)


def _character(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    return _ESCAPES.get(escape, escape)
