"""The start-up check: all packages from one folder."""

from pathlib import Path

import pytest

from millrace.errors import Fatal
from millrace.roots import PACKAGES, check_roots, one_root

ONE = {name: Path("/a") / name for name in PACKAGES}


def test_packages_of_one_root_pass() -> None:
    """The root is returned, so that it can be printed."""
    assert one_root(ONE) == Path("/a")


def test_a_package_of_another_root_is_named() -> None:
    """An old installed copy beside a checkout is found before it does harm."""
    with pytest.raises(Fatal, match="zk: /old/zk") as caught:
        one_root({**ONE, "zk": Path("/old/zk")})
    assert caught.value.code == "MR-8001"


def test_a_missing_package_is_named() -> None:
    """Half an installation is no installation."""
    with pytest.raises(Fatal, match="consumer: not found"):
        one_root({**ONE, "consumer": None})


def test_this_checkout_has_one_root() -> None:
    """What the tests import is what lies here."""
    assert check_roots() == Path(__file__).resolve().parents[2]
