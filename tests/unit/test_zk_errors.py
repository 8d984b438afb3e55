"""Every error of the driver becomes one of ours, by class."""

import pytest
from kazoo import exceptions as zke

from millrace.errors import Fatal, MillraceError, Retryable
from zk.session import translated

AWAY = {
    "ConnectionLoss",
    "ConnectionClosedError",
    "ConnectionDropped",
    "OperationTimeoutError",
    "SessionExpiredError",
    "SessionMovedError",
}
CONTESTED = {"BadVersionError", "NoNodeError", "NodeExistsError", "NotEmptyError"}
ALL = sorted(
    (e for e in vars(zke).values() if isinstance(e, type) and issubclass(e, zke.KazooException)),
    key=lambda e: e.__name__,
)


@pytest.mark.parametrize("error", ALL, ids=lambda e: e.__name__)
def test_every_error_of_the_driver_has_a_branch(error: type[zke.KazooException]) -> None:
    """Away is retryable, and for a write its outcome unknown; contested is retryable; all else is for a person."""
    read = translated(error(), "reading /x", is_write=False)
    write = translated(error(), "writing /x", is_write=True)
    expected: tuple[type[MillraceError], str, str]
    if error.__name__ in AWAY:
        expected = (Retryable, "MR-4001", "MR-4002")
    elif error.__name__ in CONTESTED:
        expected = (Retryable, "MR-4007", "MR-4007")
    else:
        expected = (Fatal, "MR-4012", "MR-4012")
    assert type(read) is type(write) is expected[0]
    assert (read.code, write.code) == expected[1:]


def test_the_driver_still_has_the_errors_we_know() -> None:
    """A renamed class would fall to another branch unseen."""
    assert {error.__name__ for error in ALL} >= AWAY | CONTESTED
