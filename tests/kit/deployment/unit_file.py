"""Reads unit files of systemd: https://www.freedesktop.org/software/systemd/man/latest/systemd.syntax.html."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# of an instance 9471 on the host db1
SPECIFIERS = {"%i": "9471", "%l": "db1", "%S": "/var/lib", "%C": "/var/cache"}


@dataclass(frozen=True, slots=True)
class UnitFile:
    """``settings``: the values of each name, in order; a name that begins with `Section.`."""

    path: Path
    settings: Mapping[str, Sequence[str]]

    @classmethod
    def read(cls, path: Path) -> "UnitFile":
        """Of one file. ValueError for a line that is neither a comment, a section nor a setting."""
        found: dict[str, list[str]] = {}
        section = ""
        for line in path.read_text().splitlines():
            if not line or line[0] in "#;":
                continue
            if match := re.fullmatch(r"\[(\w+)\]", line):
                section = match[1]
                continue
            name, equals, value = line.partition("=")
            if not (equals and name.isalnum() and section):
                raise ValueError(f"{path}: {line}")
            found.setdefault(f"{section}.{name}", []).append(value)
        return cls(path, found)

    def one(self, name: str) -> str:
        """The value of a setting of [Service] that is there once."""
        (value,) = self.settings[f"Service.{name}"]
        return value

    def variables(self) -> dict[str, str]:
        """The environment that the unit itself sets."""
        words = shlex.split(" ".join(self.settings.get("Service.Environment", ())))
        return {
            name: _specified(value) for name, _, value in (word.partition("=") for word in words)
        }

    def command(self, environment: Mapping[str, str]) -> list[str]:
        """The words of ExecStart: a word `$NAME` becomes words, `${NAME}` a part of one. KeyError for an unset name."""
        found = []
        for word in _specified(self.one("ExecStart")).split():
            if re.fullmatch(r"\$\w+", word):
                found += environment[word[1:]].split()
            else:
                found.append(re.sub(r"\$\{(\w+)\}", lambda match: environment[match[1]], word))
        return found


def _specified(text: str) -> str:
    return re.sub(r"%\w", lambda match: SPECIFIERS[match[0]], text)
