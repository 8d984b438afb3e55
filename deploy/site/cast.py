"""Recordings of a terminal: the sessions that a page shows, files in the format asciicast 2, and animated pictures.

A page names a session in a comment, and shows it as a block whose lines with ``$`` are commands:

    <!-- recording: NAME -->
    ```console
    $ millrace status
    cluster default, …
    ```

A picture has the lines as they are at the end, each from the time at which its first character was written. Pauses are
cut. An escape sequence that ``_Screen`` does not know is refused, so no picture shows half of one.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from itertools import groupby

WIDTH, HEIGHT = 120, 24  # characters, lines
PAUSE_S_MAX = 1.5
_CHARACTER_PX, _LINE_PX, _EDGE_PX = 8.43, 19, 14  # of 14 px in a monospaced font
_SESSION = re.compile(
    r"^<!-- recording: (\w+) -->\n```console\n(.*?)^```\n", re.DOTALL | re.MULTILINE
)
_TOKEN = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\x1b(.)|([\r\n\t\b])|([^\x1b\r\n\t\b]+)", re.DOTALL)
_NUMBER = re.compile(r"[\d.:,]*\d")
_COLORS = ("#8b949e", "#ff7b72", "#7ee787", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#e6edf3")
_STYLE = """
  text { font: 14px "DejaVu Sans Mono", ui-monospace, Menlo, Consolas, monospace; fill: #e6edf3; white-space: pre; }
  .screen { fill: #161b22; } .b { font-weight: bold; } .d { opacity: 0.7; }
  .l { opacity: 0; animation: show 0.01s linear forwards; } @keyframes show { to { opacity: 1; } }
  @media (prefers-reduced-motion: reduce) {
    .l, .w { animation-duration: 0.001s !important; animation-delay: 0s !important; }
  }
"""


@dataclass(frozen=True)
class Session:
    """A session as a page shows it; ``block`` is its text."""

    name: str
    block: str
    markdown: str  # the whole place in the page

    def steps(self) -> list[tuple[str, str]]:
        """Each command with the output that the page shows."""
        parts = re.split(r"^\$ (.*)\n", self.block, flags=re.MULTILINE)
        return list(zip(parts[1::2], parts[2::2], strict=True))


def sessions_of(page: str) -> list[Session]:
    """The sessions of a page, in its order."""
    return [Session(name, block, found) for name, block, found in _found(page)]


def _found(page: str) -> Iterator[tuple[str, str, str]]:
    for found in _SESSION.finditer(page):
        yield found[1], found[2], found[0]


def shape(text: str) -> str:
    """The text with all numbers and all widths of spaces equal."""
    lines = (" ".join(_NUMBER.sub("0", line).split()) for line in text.splitlines())
    return "\n".join(lines).strip()


def fits(shown: str, output: str) -> bool:
    """Whether an output has the lines of a page, except for numbers. ``…`` is the rest of a line, or any lines."""
    parts = re.escape(shape(shown)).replace("\\\n", "\n").split("\n")
    lines = [r"(?:.*\n)*?" if part == "…" else part.replace("…", ".*") + r"\n" for part in parts]
    return re.fullmatch("".join(lines), shape(output) + "\n") is not None


@dataclass
class Recording:
    """Seconds since its begin, ``o`` and what the terminal wrote, or ``m`` and a command that was typed."""

    events: list[tuple[float, str, str]] = field(default_factory=list)

    def cast(self) -> str:
        """The recording as a file in the format asciicast 2."""
        header = {"version": 2, "width": WIDTH, "height": HEIGHT, "idle_time_limit": PAUSE_S_MAX}
        lines = [header, *([round(time_s, 3), kind, text] for time_s, kind, text in self.events)]
        return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)

    def text(self) -> str:
        """The lines at the end."""
        return "\n".join("".join(character for character, _ in line) for _, line in self._lines())

    def commands(self) -> list[str]:
        """The commands that were typed: output may have lines that look like one."""
        return [text for _, kind, text in self.events if kind == "m"]

    def _lines(self) -> list[tuple[float, list[tuple[str, str]]]]:
        screen, now_s, last_s = _Screen(), 0.0, 0.0
        for time_s, kind, text in self.events:
            now_s += min(time_s - last_s, PAUSE_S_MAX)
            last_s = time_s
            if kind == "o":
                screen.write(now_s, text)
        return screen.lines

    def picture(self) -> str:
        """The recording as an animated SVG that shows the last lines, as a terminal does."""
        lines = self._lines()
        width = max((len(line) for _, line in lines), default=0) * _CHARACTER_PX + 2 * _EDGE_PX
        height = min(len(lines), HEIGHT) * _LINE_PX + 2 * _EDGE_PX
        size = f'viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}"'
        texts = "\n".join(_line(number, *line) for number, line in enumerate(lines))
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="a terminal">\n'
            f"<style>{_STYLE}{_scrolling(lines)}</style>\n"
            f'<rect class="screen" width="{width:.0f}" height="{height}" rx="8"/>\n'
            f'<svg y="{_EDGE_PX}" width="{width:.0f}" height="{height - 2 * _EDGE_PX}">'
            f'<g class="w">\n{texts}\n</g></svg>\n</svg>\n'
        )


def read(cast: str) -> Recording:
    """The recording of a file."""
    events = [json.loads(line) for line in cast.splitlines()[1:]]
    return Recording([(float(time_s), str(kind), str(text)) for time_s, kind, text in events])


class _Screen:
    """An endless screen: each line with the time of its first character."""

    def __init__(self) -> None:
        self.lines: list[tuple[float, list[tuple[str, str]]]] = []
        self._row = self._column = 0
        self._style = ""

    def write(self, time_s: float, text: str) -> None:
        """Write what a program sent."""
        for found in _TOKEN.finditer(text):
            numbers, letter, other, control, plain = found.groups()
            if letter == "m":
                self._style = _styled(self._style, numbers)
            elif letter:
                self._move(letter, numbers)
            elif other:
                raise ValueError(f"the escape sequence {found[0]!r} is not known")
            elif control == "\n":
                self._row += 1
            elif control == "\r":
                self._column = 0
            elif control == "\b":
                self._column = max(0, self._column - 1)
            elif control == "\t":
                self._put(time_s, " " * (8 - self._column % 8))
            else:
                self._put(time_s, plain)

    def _put(self, time_s: float, text: str) -> None:
        while len(self.lines) <= self._row:
            self.lines.append((time_s, []))
        line = self.lines[self._row][1]
        line += [(" ", "")] * (self._column - len(line))
        line[self._column : self._column + len(text)] = [(one, self._style) for one in text]
        self._column += len(text)

    def _move(self, letter: str, numbers: str) -> None:
        count = int(numbers) if numbers.isdigit() else 1
        if letter == "A":
            self._row = max(0, self._row - count)
        elif letter == "G":
            self._column = count - 1
        elif letter == "K" and self._row < len(self.lines):
            del self.lines[self._row][1][0 if numbers == "2" else self._column :]
        elif letter == "J":
            del self.lines[self._row + 1 :]
        elif letter not in "hlK":  # modes: a hidden cursor, a pasted text
            raise ValueError(f"the escape sequence {numbers}{letter} is not known")


def _styled(style: str, numbers: str) -> str:
    """Classes and color of the text after a sequence of colors: of a 256-color one, its place in the first 16."""
    codes = [int(code or 0) for code in numbers.split(";")]
    if codes[0] == 38 and codes[1:2] == [5]:
        codes = [30 + codes[2] % 8]
    for code in codes:
        if code == 0:
            style = ""
        elif code in (1, 2):
            style += " b" if code == 1 else " d"
        elif 30 <= code <= 37 or 90 <= code <= 97:
            style = re.sub(r"#\w+", "", style) + _COLORS[code % 10]
        elif code == 39:
            style = re.sub(r"#\w+", "", style)
    return style


def _line(number: int, time_s: float, line: list[tuple[str, str]]) -> str:
    """The text of a line, shown from its time on."""
    spans = []
    for style, group in groupby(line, key=lambda one: one[1]):
        text = escape("".join(character for character, _ in group))
        color, classes = re.search(r"#\w+", style), re.sub(r"#\w+", "", style).strip()
        look = (f' class="{classes}"' if classes else "") + (f' fill="{color[0]}"' if color else "")
        spans.append(f"<tspan{look}>{text}</tspan>" if look else text)
    baseline = number * _LINE_PX + 14
    delay = f' style="animation-delay:{time_s:.2f}s"'
    return f'<text class="l" x="{_EDGE_PX}" y="{baseline}" xml:space="preserve"{delay}>{"".join(spans)}</text>'


def _scrolling(lines: list[tuple[float, list[tuple[str, str]]]]) -> str:
    """The animation that moves the lines up when the screen is full."""
    if len(lines) <= HEIGHT:
        return ""
    end_s = lines[-1][0] + 0.01
    steps = [
        f"{100 * time_s / end_s:.3f}% {{ transform: translateY({-(number + 1 - HEIGHT) * _LINE_PX}px); }}"
        for number, (time_s, _) in enumerate(lines)
        if number >= HEIGHT
    ]
    last = f"100% {{ transform: translateY({-(len(lines) - HEIGHT) * _LINE_PX}px); }}"
    frames = " ".join(["0% { transform: none; }", *steps, last])
    return (
        f"  @keyframes up {{ {frames} }} .w {{ animation: up {end_s:.2f}s step-end forwards; }}\n"
    )
