"""`pip install` of this checkout's wheel over that of the last commit whose package installed several names."""

from pathlib import Path

from millrace import __version__
from millrace.deploy.package.bundle import build_wheel
from tests.kit.wheel import Installation, earlier_wheel

EARLIER_NAMES = {"consumer", "deploy", "drivers", "producer", "registry", "schemas", "zk"}
EARLIER_VERSION = "0.1.0"


def test_new_wheel_replaces_every_name_of_the_earlier_one(tmp_path: Path) -> None:
    """`pip install` over it leaves one name and a consistent environment; so does the way back."""
    earlier, new = earlier_wheel(tmp_path / "earlier"), build_wheel(tmp_path / "new")
    both = Installation.of(earlier, tmp_path / "env")
    names = EARLIER_NAMES | {"millrace"}
    for wheel, version, wanted in (
        (None, EARLIER_VERSION, names),
        (new, __version__, {"millrace"}),
        (earlier, EARLIER_VERSION, names),
    ):
        if wheel is not None:
            both.install(wheel)
        assert both.run(*both.program, "--version") == f"millrace {version}\n"
        assert names & {path.name for path in both.site_packages.iterdir()} == wanted
        assert "No broken requirements" in both.run(both.python, "-m", "pip", "check")
        both.run(both.python, "-P", "-c", "import millrace.client")
