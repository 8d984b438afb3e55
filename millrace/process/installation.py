"""Installation: every part of the package can be imported, and the extras that a command needs.

One name is installed, ``millrace``. The folders of the repository are its subpackages: a wheel has them in
``millrace/``, and a checkout has links there (``millrace/producer`` → ``../producer``). An archive or a file system
without symbolic links loses them, so every entry point calls ``check_parts()`` first.

    millrace           a capture host: worker, scheduler, registry, status and every command about sets and tasks
    millrace[apply]    the apply driver: PySpark, pandas and Arrow
    millrace[local]    ``up``, ``demo``, ``bench``: apply, ZooKeeper and Ivy out of PySpark, and a peer to measure
    millrace[dev]      all of these and the tools for tests

Guarantees: all parts are found. A command whose extra is missing ends with MR-8011 and the pip
command, before it imports anything of it. Not done here: versions; pip compares them when it installs.
"""

from collections.abc import Mapping
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from millrace.errors import Fatal

PARTS = ("consumer", "deploy", "drivers", "producer", "registry", "schemas", "zk")


def check_parts(package: str = "millrace") -> Path:
    """The folder of the package; Fatal MR-8001 names each part that is missing there."""
    spec = find_spec(package)
    folders = spec.submodule_search_locations if spec is not None else None
    if not folders:
        raise Fatal("MR-8001", f"the package {package} is missing")
    missing = [name for name in PARTS if not _is_package(f"{package}.{name}")]
    if missing:
        raise Fatal("MR-8001", f"{folders[0]} has no packages {', '.join(missing)}")
    return Path(folders[0])


def _is_package(name: str) -> bool:
    """A folder with ``__init__.py``; a link that became a text file, or leads nowhere, is none."""
    spec = find_spec(name)
    return spec is not None and spec.origin is not None and bool(spec.submodule_search_locations)


class Extra(StrEnum):
    """An extra that a command may need."""

    APPLY = "apply"
    LOCAL = "local"


_APPLY = ("pandas", "pyarrow", "pyspark")
MODULES: Mapping[Extra, tuple[str, ...]] = MappingProxyType(
    {Extra.APPLY: _APPLY, Extra.LOCAL: (*_APPLY, "pymysqlreplication")}
)


def missing_modules(extra: Extra) -> list[str]:
    """The modules of ``extra`` that are not installed."""
    return [name for name in MODULES[extra] if find_spec(name) is None]


def check_extra(extra: Extra, *, user: str) -> None:
    """Raise Fatal MR-8011 if a module of ``extra`` is not installed. ``user`` is the command that needs it."""
    missing = missing_modules(extra)
    if missing:
        raise Fatal(
            "MR-8011",
            f"{user} needs {_listed(missing)}, which this environment does not have",
            fix="In the folder with the wheel and `constraints.txt`: `pip install -c constraints.txt"
            f' "$(ls millrace-*.whl)[{extra}]"`. In a checkout: `make setup`.',
        )


def _listed(names: list[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


if __name__ == "__main__":
    print(check_parts())
