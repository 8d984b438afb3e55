"""Java's archives of class data: taken only when whole, and of this JVM."""

from pathlib import Path

import pytest

from millrace.java import ClassData


@pytest.fixture
def jvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A JVM whose classes are this file."""
    classes = tmp_path / "jvm" / "lib" / "modules"
    program = tmp_path / "jvm" / "bin" / "java"
    for path in (classes, program):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jvm"))
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "home"))
    return classes


def _make(wanted: ClassData, contents: bytes, failure: OSError | None = None) -> None:
    with wanted.making() as options:
        option = next(option for option in options if "ArchiveClassesAtExit=" in option)
        Path(option.partition("=")[2]).write_bytes(contents)
        if failure is not None:
            raise failure


def test_an_archive_is_used_when_it_is_whole(jvm: Path) -> None:
    """Not before, and not when its making failed."""
    wanted = ClassData("spark", "4.2")
    assert wanted.options() == ()
    with pytest.raises(OSError, match="no room"):
        _make(wanted, b"half", OSError("no room"))
    assert wanted.options() == ()
    _make(wanted, b"whole")
    (option,) = wanted.options()
    assert Path(option.partition("=")[2]).read_bytes() == b"whole"
    assert list(wanted.path.parent.iterdir()) == [wanted.path]


def test_the_archive_of_another_jvm_or_program_is_none(jvm: Path) -> None:
    """Updated in its place, another version, another name; the new one replaces the old one of the same name."""
    wanted = ClassData("spark", "4.2")
    _make(wanted, b"whole")
    assert ClassData("spark", "4.3").options() == ClassData("kafka", "4.2").options() == ()
    jvm.write_bytes(b"another")
    assert wanted.options() == ()
    _make(wanted, b"new")
    assert list(wanted.path.parent.iterdir()) == [wanted.path]
