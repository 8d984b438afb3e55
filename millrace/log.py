"""Structured logs on standard error: one event with named values per line, secrets redacted.

    log = get_logger("producer.source.receive.receiver")
    log.info("dump started", host=host, port=port, gtid_set=str(wanted))

Guarantees: a value under a secret name (password, token, …) is never printed, also inside nested mappings. Credentials
in URLs are cut out. A MillraceError is printed with its code and fix. A warning that a loop repeats is printed when it
changes, then once in ``REPEAT_S`` with ``repeated``, the number of times since the last line.
Not done here: files and rotation. The owner of the process collects standard error.
"""

import logging
import re
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field

import structlog
from structlog.typing import FilteringBoundLogger

from millrace.errors import URL_CREDENTIALS, MillraceError

REDACTED = "[redacted]"
REPEAT_S = 60.0
_THINGS_MAX = 1_000  # that are remembered; the one that was warned about longest ago is forgotten
_THING = ("task", "set", "member", "worker", "peer", "file", "directory")
_DURATION = re.compile(r"\d+(\.\d+)? ?(s|ms|seconds)\b")
_SECRET_NAME = re.compile(r"passw(or)?d|secret|token|credential|private_key|authorization", re.I)


def get_logger(name: str) -> FilteringBoundLogger:
    """A logger whose lines carry ``component=name``. Works before ``configure`` too."""
    logger: FilteringBoundLogger = structlog.get_logger(component=name)
    return logger


def configure(*, json: bool, level: str) -> None:
    """Set up logging for this process. ``level`` is debug, info, warning or error."""
    numbers = logging.getLevelNamesMapping()
    if level.upper() not in numbers:
        raise ValueError(f"log level {level!r} is not one of debug, info, warning, error")
    renderer = (
        structlog.processors.JSONRenderer(default=str)
        if json
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            explain_error,
            Repeats().drop_repeated,
            redact,
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(numbers[level.upper()]),
        # looked up for each line, so that a test or a daemon may replace standard error
        logger_factory=lambda *_: structlog.PrintLogger(file=sys.stderr),
        cache_logger_on_first_use=False,
    )


def explain_error(
    _logger: object, _method: str, event: MutableMapping[str, object]
) -> MutableMapping[str, object]:
    """Processor: ``error=<MillraceError>`` becomes its code, message and fix."""
    error = event.get("error")
    if isinstance(error, MillraceError):
        event["error"] = error.message
        event["code"] = error.code
        event["fix"] = error.fix
        for name, value in error.context.items():
            event.setdefault(name, value)
    return event


@dataclass(slots=True)
class _Line:
    """The last warning with its words about one thing."""

    text: tuple[tuple[str, str], ...]
    at_s: float
    repeated: int = 0


@dataclass(slots=True)
class Repeats:
    """The last warnings of a process, by what they are about: a task, a member, a file…, else a component.

    A line of level info about the same thing is a change: warnings after it are printed again.
    """

    clock: Callable[[], float] = time.monotonic
    _things: OrderedDict[tuple[str, ...], dict[str, _Line]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def drop_repeated(
        self, _logger: object, method: str, event: MutableMapping[str, object]
    ) -> MutableMapping[str, object]:
        """Processor: DropEvent for a warning that equals the last one with its words, but for numbers and durations."""
        about = tuple(str(event.get(name, "")) for name in _THING)
        thing = about if any(about) else (str(event.get("component", "")),)
        text = tuple(
            (name, _DURATION.sub("#", value))
            for name, value in sorted(event.items())
            if isinstance(value, str) and name != "timestamp"
        )
        with self._lock:
            if method in ("debug", "info"):
                self._things.pop(thing, None)
                return event
            lines = self._things.setdefault(thing, {})
            self._things.move_to_end(thing)
            if len(self._things) > _THINGS_MAX:
                self._things.popitem(last=False)
            words, now_s = str(event.get("event", "")), self.clock()
            last = lines.get(words)
            if last is not None and last.text == text:
                if now_s - last.at_s < REPEAT_S:
                    last.repeated += 1
                    raise structlog.DropEvent
                if last.repeated:
                    event["repeated"] = last.repeated
            lines[words] = _Line(text, now_s)
        return event


def redact(
    _logger: object, _method: str, event: MutableMapping[str, object]
) -> MutableMapping[str, object]:
    """Processor: replaces values under secret names, and credentials in URLs."""
    for name, value in event.items():
        event[name] = _redacted(name, value)
    return event


def _redacted(name: str, value: object) -> object:
    if _SECRET_NAME.search(name) and value is not None:
        return REDACTED
    if isinstance(value, str):
        return URL_CREDENTIALS.sub(REDACTED, value)
    if isinstance(value, Mapping):
        return {key: _redacted(str(key), inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_redacted("", inner) for inner in value]
    return value
