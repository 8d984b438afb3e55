"""The tools of other projects that check the files of ``deploy/``, built once in ``$MILLRACE_HOME/clients``.

    tool("helm", "lint", …)

Versions: ``programs/requirements.txt``, ``programs/go.mod`` and ``BUILD``. promtool is Debian's.
"""

from collections.abc import Sequence
from pathlib import Path

from tests.kit.clients.program import BuiltProgram, ProgramRun

HELM, KUBECONFORM = "v3.22.0", "v0.8.0"
_GO_INSTALL = 'GOBIN="$PWD" go install'
BUILD: Sequence[Sequence[str]] = (
    ("/usr/bin/python3", "-m", "venv", "venv"),
    ("venv/bin/pip", "install", "--quiet", "-r", "requirements.txt"),
    ("venv/bin/python", "schemas.py"),
    ("ln", "-s", "venv/bin/hadolint", "venv/bin/yamllint", "."),
    ("go", "build", "-o", "check-compose", "."),
    ("bash", "-c", f"{_GO_INSTALL} helm.sh/helm/v3/cmd/helm@{HELM}"),
    ("bash", "-c", f"{_GO_INSTALL} github.com/yannh/kubeconform/cmd/kubeconform@{KUBECONFORM}"),
    ("bash", "-c", "apt-get update -qq && apt-get download -qq prometheus 2>&1"),
    ("bash", "-c", "dpkg-deb --extract prometheus_*.deb debian && ln -s debian/usr/bin/promtool ."),
)
_TOOLS = BuiltProgram(
    Path(__file__).with_name("programs"), BUILD, ("bash", "-c", 'exec "./$0" "$@"')
)


def prepare() -> None:
    """Build them, unless this has been done for the same versions."""
    _TOOLS.prepare()


def tool(name: str, *arguments: str) -> ProgramRun:
    """Run a tool; ``prepare`` has built it."""
    return _TOOLS.run(name, *arguments)


def accepts(name: str, *arguments: str) -> str:
    """The output of a tool that must find nothing."""
    run = tool(name, *arguments)
    assert run.code == 0, f"{name} {' '.join(arguments)}: {run.output}{run.errors}"
    return run.output
