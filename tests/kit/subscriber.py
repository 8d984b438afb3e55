"""A Python that can import only a subscriber's packages: the product, confluent-kafka and fastavro."""

import subprocess
import sys
from pathlib import Path

import confluent_kafka

from tests.kit.paths import ROOT

RUN_S = 300.0
_INSTALLED = ("confluent_kafka", "confluent_kafka.libs", "fastavro")
_START = """
import runpy, sys
root, packages, program, *sys.argv[1:] = sys.argv[1:]
sys.path[:0] = [root, packages]
runpy.run_path(program, run_name="__main__")
"""


def run_as_subscriber(code: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run ``code`` as a program; ``folder`` is its working directory and has its files."""
    packages = folder / "packages"
    packages.mkdir(exist_ok=True)
    site = Path(confluent_kafka.__file__).parents[1]
    for name in _INSTALLED:
        if (site / name).exists() and not (packages / name).exists():
            (packages / name).symlink_to(site / name)
    program = folder / "program.py"
    program.write_text(code)
    # -I -S: no site-packages, no PYTHONPATH, no working directory on the path
    command = [sys.executable, "-I", "-S", "-c", _START, str(ROOT), str(packages), str(program)]
    return subprocess.run(
        [*command, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_S,
    )
