"""The exception chain that CPython builds when a C extension sets an error and calls back into Python."""


def hide(error: BaseException, lines: int) -> None:
    """Raise ``error`` as the cause of ``lines`` SystemErrors: one for each call that returned while it was set."""
    for _ in range(lines):
        hiding = SystemError("<function Logger.log> returned a result with an exception set")
        hiding.__cause__ = error
        error = hiding
    raise error
