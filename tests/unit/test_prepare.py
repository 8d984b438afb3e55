"""The steps of `make setup` and `make demo` run side by side, in order, and end together."""

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from millrace.deploy.local import prepare, wheel
from millrace.deploy.local.prepare import (
    DEV,
    LOCAL,
    Failed,
    Preparation,
    Step,
    steps_for,
    uv_settings,
)
from tests.kit.paths import ROOT

DEADLINE_S = 60.0


def _shell(script: str) -> tuple[str, ...]:
    return ("bash", "-c", script)


def _prepared(folder: Path, *steps: Step) -> str:
    out = io.StringIO()
    Preparation(steps, folder, out=out).run()
    return out.getvalue()


def _wait(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("goal", [LOCAL, DEV])
@pytest.mark.parametrize("has_packages", [True, False])
def test_steps_need_only_earlier_steps(goal: str, has_packages: bool) -> None:
    """So no step waits for itself, and the estimate can be made in one pass."""
    earlier: set[str] = set()
    known = {step.name for step in steps_for(goal, has_packages=False)}
    for step in steps_for(goal, has_packages=has_packages):
        assert not known.difference(earlier).intersection(step.needs) or has_packages
        assert known.issuperset(step.needs)
        earlier.add(step.name)
    assert len(earlier) == len(steps_for(goal, has_packages=has_packages))


def test_prepare_imports_nothing_but_pythons_library() -> None:
    """It runs before the first package is installed."""
    code = (
        "import sys; import millrace.deploy.local.prepare;"
        "print([name for name in sys.modules if 'site-packages' in"
        " str(getattr(sys.modules[name], '__file__', ''))])"
    )
    command = (sys.executable, "-S", "-c", code)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr


def test_steps_run_side_by_side_after_those_they_need(tmp_path: Path) -> None:
    """Two steps wait for each other's file: one after the other, they would never end."""
    one = Step("one", _shell(f"cd {tmp_path}; touch 1; until [ -e 2 ]; do sleep 0.02; done"), 1)
    two = Step("two", _shell(f"cd {tmp_path}; touch 2; until [ -e 1 ]; do sleep 0.02; done"), 1)
    last = Step("last", _shell(f"cd {tmp_path}; [ -e 1 ] && [ -e 2 ]"), 1, ("one", "two", "gone"))
    assert _prepared(tmp_path, last, one, two) == ""  # quick, so nothing is announced


def test_failed_step_ends_the_others_and_prints_its_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Children of the others end, too. Their output is not printed."""
    child = tmp_path / "child"
    other = Step(
        "other",
        _shell(f"echo noise; sleep 1000 & echo $! > {child}.new; mv {child}.new {child}; wait"),
        1,
    )
    bad = Step(
        "bad", _shell(f"until [ -e {child} ]; do sleep 0.02; done; echo reason >&2; exit 3"), 1
    )
    with pytest.raises(Failed, match="bad: failed"):
        _prepared(tmp_path, other, bad)
    assert capsys.readouterr().err == "reason\n"
    _wait(lambda: not _is_alive(int(child.read_text())))


def _is_alive(process: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return False


def test_failed_packages_name_the_other_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same sentence as when uv itself can't be fetched."""
    monkeypatch.setattr(prepare, "UV", _shell("exit 2"))
    with pytest.raises(Failed, match="PIP_INDEX_URL=URL make setup"):
        _prepared(tmp_path, Step("packages", prepare.UV, 1))


def test_notes_of_a_step_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A server that is fetched on Debian only is named; progress and debug output are not printed."""
    noting = Step("noting", _shell("echo progress; echo note >&2"), 1, does_note=True)
    silent = Step("silent", _shell("echo warning >&2"), 1)
    assert _prepared(tmp_path, noting, silent) == ""
    assert capsys.readouterr().err == "note\n"


def test_log_has_a_line_for_each_long_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First what runs and how long it will take."""
    monkeypatch.setattr(prepare, "ANNOUNCE_AFTER_S", 0.0)
    steps = (Step("one", _shell("sleep 0.3"), 90), Step("two", _shell("true"), 30, ("one",)))
    first, one, two, last = _prepared(tmp_path, *steps).splitlines()
    assert first == "millrace: about 2:00 left: one"
    assert one.startswith("millrace: one: ")
    assert two.startswith("millrace: two: ")
    assert last.startswith("millrace: prepared in ")


def test_interrupted_preparation_ends_its_steps(tmp_path: Path) -> None:
    """As Ctrl-C, and `kill`. Nothing is left running."""
    child = tmp_path / "child"
    script = f"echo $$ > {child}.new; mv {child}.new {child}; sleep 1000"
    code = (
        "import signal, sys; from pathlib import Path;"
        "from millrace.deploy.local.prepare import Preparation, Step;"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143));"
        f"Preparation([Step('one', ('bash', '-c', {script!r}), 1)], Path({str(tmp_path)!r})).run()"
    )
    process = subprocess.Popen((sys.executable, "-c", code), cwd=ROOT)
    _wait(child.exists)
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE_S) == 143
    _wait(lambda: not _is_alive(int(child.read_text())))


def test_uv_follows_the_settings_of_pip() -> None:
    """Else a site with an index of its own could not install, or would ask the public one."""
    lines = (
        "global.index-url='https://one.example/simple'\n"
        ":env:.index-url='https://two.example/simple'\n"
        "global.find-links='/a /b'\n"
        "global.extra-index-url='https://x.example https://y.example'\n"
        "install.no-compile='yes'\n"
        "global.trusted-host='two.example'\n"
    )
    assert uv_settings(lines, {"UV_INSECURE_HOST": "mine"}) == {
        "UV_DEFAULT_INDEX": "https://two.example/simple",
        "UV_FIND_LINKS": "/a,/b",
        "UV_INDEX": "https://x.example https://y.example",
    }
    assert uv_settings("", {"REQUESTS_CA_BUNDLE": os.devnull}) == {"SSL_CERT_FILE": os.devnull}


def test_wheel_of_pyspark_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkouts that prepare at the same time wait for the first; an interrupted build leaves no wheel."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    builds: list[Path] = []

    def build(folder: Path) -> None:
        builds.append(folder)
        if len(builds) == 1:
            (folder / "pyspark-9.9-py3-none-any.whl").write_text("a part")
            raise KeyboardInterrupt
        time.sleep(0.05)
        (folder / "pyspark-9.9-py3-none-any.whl").write_text("whole")

    with pytest.raises(KeyboardInterrupt):
        wheel.ensure("9.9", build)
    assert list(wheel.wheels().iterdir()) == []
    threads = [threading.Thread(target=wheel.ensure, args=("9.9", build)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    (file,) = wheel.wheels().iterdir()
    assert (file.read_text(), len(builds)) == ("whole", 2)
    assert wheel.pinned((ROOT / "constraints.txt").read_text()).count(".") == 2


def test_packages_wait_for_the_wheel_and_find_it() -> None:
    """Otherwise uv fetches and builds the source distribution."""
    steps = {step.name: step for step in steps_for(DEV, has_packages=False)}
    (packages,) = (step for step in steps.values() if "-e" in step.command)
    assert prepare.WHEEL in packages.needs
    assert prepare.WHEEL not in {step.name for step in steps_for(DEV, has_packages=True)}
