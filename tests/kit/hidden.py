"""What CPython makes of an exception that a C extension sets and then calls back into Python."""


def hide(error: BaseException, lines: int) -> None:
    """Raise ``error`` behind so many SystemErrors: one for each call that returned while it was set."""
    for _ in range(lines):
        hiding = SystemError("<function Logger.log> returned a result with an exception set")
        hiding.__cause__ = error
        error = hiding
    raise error
