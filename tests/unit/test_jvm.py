"""JVM archives are used only when complete and made by this JVM from these jars."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from millrace.jvm import KEPT_MAX, JvmArchive


@pytest.fixture
def jvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a JVM's folder."""
    for name in ("lib/modules", "bin/java", "jars/spark.jar"):
        path = tmp_path / "jvm" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x")
    (tmp_path / "jvm/bin/java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jvm"))
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "home"))
    return tmp_path / "jvm"


def _of(jvm: Path) -> JvmArchive:
    return JvmArchive("spark", [jvm / "jars/spark.jar"])


def _archive(options: Sequence[str]) -> Path:
    (option,) = (option for option in options if option.startswith("-XX:"))
    return Path(option.partition("=")[2])


def _writes(options: Sequence[str]) -> None:
    _archive(options).write_bytes(b"whole")


def _fails(options: Sequence[str]) -> None:
    _archive(options).write_bytes(b"half")
    raise OSError("no room")


def test_existing_jvm_archive_is_used(jvm: Path) -> None:
    """The archive is made once."""
    wanted = _of(jvm)
    assert wanted.options() == ()
    wanted.make(_writes)
    assert _archive(wanted.options()).read_bytes() == b"whole"
    wanted.make(_fails)


def test_failed_jvm_archive_leaves_nothing_and_is_not_retried(jvm: Path) -> None:
    """The next `make setup` does not spend another half minute on it."""
    wanted = _of(jvm)
    with pytest.raises(OSError, match="no room"):
        wanted.make(_fails)
    assert wanted.options() == ()
    wanted.make(_fails)
    left = {path.suffix for path in (jvm.parent / "home/jvm-archives").iterdir()}
    assert left == {"", ".tried"}


def test_incomplete_jvm_archive_is_ignored(jvm: Path) -> None:
    """Java 17 crashes on it."""
    wanted = _of(jvm)
    wanted.make(_writes)
    os.truncate(_archive(wanted.options()), 3)
    assert wanted.options() == ()


@pytest.mark.parametrize("name", ["lib/modules", "jars/spark.jar"])
def test_jvm_archive_of_other_jvm_or_jars_is_ignored(jvm: Path, name: str) -> None:
    """Java refuses it with warnings, so a new one is made. A few stay, for other environments."""
    for number in range(2 * KEPT_MAX):
        wanted = _of(jvm)
        assert wanted.options() == ()
        wanted.make(_writes)
        assert wanted.options()
        os.utime(jvm / name, ns=(number, number))
    assert len(list((jvm.parent / "home/jvm-archives").glob("*.jsa"))) == KEPT_MAX


def test_folder_with_a_space_gets_no_jvm_archives(
    jvm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark and Java split options at spaces."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "a home"))
    _of(jvm).make(_writes)
    assert _of(jvm).options() == ()
