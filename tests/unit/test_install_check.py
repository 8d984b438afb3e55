"""The start-up check finds every part of the package."""

import sys
from pathlib import Path

import pytest

from millrace.errors import Fatal
from millrace.process.installation import PARTS, check_parts
from tests.kit.paths import ROOT


def _package(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    (folder / name / "__init__.py").touch()
    return folder / name


def test_checkout_without_links_names_the_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git without symbolic links writes text files; a copied link leads nowhere; a folder may be empty."""
    package = _package(tmp_path, "cloned")
    for name in set(PARTS) - {"consumer", "deploy", "zk"}:
        _package(package, name)
    (package / "consumer").write_text("../consumer")
    (package / "deploy").symlink_to("../deploy")
    (package / "zk").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Fatal, match=r"cloned has no packages consumer, deploy, zk$") as caught:
        check_parts("cloned")
    assert caught.value.code == "MR-8001"
    monkeypatch.delitem(sys.modules, "cloned")


def test_missing_package_is_named() -> None:
    """As after `pip uninstall`, in a process that still runs."""
    with pytest.raises(Fatal, match="the package nothing_of_this_name is missing"):
        check_parts("nothing_of_this_name")


def test_checkout_has_all_parts() -> None:
    """The tests import this checkout. Each folder of the product is a part."""
    assert check_parts() == ROOT / "millrace"
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert folders - {"millrace", "tests"} == set(PARTS)
