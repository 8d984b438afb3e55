"""The start-up check requires all packages in one folder."""

from pathlib import Path

import pytest

from millrace.errors import Fatal
from millrace.process.installation import PACKAGES, check_one_root, one_root

ONE = {name: Path("/a") / name for name in PACKAGES}


def test_packages_of_one_root_pass() -> None:
    """The root is returned, so that it can be printed."""
    assert one_root(ONE) == Path("/a")


def test_package_of_another_root_is_named() -> None:
    """An old installed copy beside a checkout is found at the start."""
    with pytest.raises(Fatal, match="zk: /old/zk") as caught:
        one_root({**ONE, "zk": Path("/old/zk")})
    assert caught.value.code == "MR-8001"


def test_missing_package_is_named() -> None:
    """An incomplete installation does not start."""
    with pytest.raises(Fatal, match="consumer: not found"):
        one_root({**ONE, "consumer": None})


def test_checkout_has_one_root() -> None:
    """The tests import this checkout."""
    assert check_one_root() == Path(__file__).resolve().parents[2]
