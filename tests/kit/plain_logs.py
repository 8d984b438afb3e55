"""Logs of tests: structlog's usual lines, whose tracebacks rich does not color, which takes longer than most tests."""

import structlog


def log_plainly() -> None:
    """Set up the logs of this process as they are before ``millrace.log.configure``, with plain tracebacks."""
    structlog.reset_defaults()
    *others, renderer = structlog.get_config()["processors"]
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    assert isinstance(renderer, structlog.dev.ConsoleRenderer)
    structlog.configure(processors=[*others, plain])
