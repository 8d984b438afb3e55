"""Installation: all our packages from one folder, and the extras that a command needs.

An old installed copy could mix silently with a checkout (``schemas`` of one, ``producer`` of the other). So every entry
point calls ``check_one_root()`` first.

    millrace           a capture host: worker, scheduler, registry, status and every command about sets and tasks
    millrace[apply]    the apply driver: PySpark and pandas
    millrace[local]    ``up``, ``demo``, ``bench``: apply, ZooKeeper and Ivy out of PySpark, and a peer to measure
    millrace[dev]      all of these and the tools for tests

Guarantees: all packages are found, below one folder. A command whose extra is missing ends with MR-8011 and the pip
command, before it imports anything of it. Not done here: versions; pip compares them when it installs.
"""

import importlib.util
from collections.abc import Mapping
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from millrace.errors import Fatal

PACKAGES = ("millrace", "schemas", "drivers", "registry", "zk", "producer", "consumer", "deploy")


def check_one_root() -> Path:
    """The folder that holds all packages; Fatal MR-8001 names each package and where it would load from."""
    return one_root({package: _location(package) for package in PACKAGES})


def one_root(locations: Mapping[str, Path | None]) -> Path:
    """The parent of all package folders. None marks a package that was not found."""
    roots = {place.parent for place in locations.values() if place is not None}
    if len(roots) == 1 and None not in locations.values():
        return roots.pop()
    places = {name: str(place or "not found") for name, place in locations.items()}
    found = ", ".join(f"{name}: {place}" for name, place in places.items())
    raise Fatal("MR-8001", f"our packages do not load from one folder: {found}")


def _location(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))).resolve()


class Extra(StrEnum):
    """An extra that a command may need."""

    APPLY = "apply"
    LOCAL = "local"


_APPLY = ("pandas", "pyspark")
MODULES: Mapping[Extra, tuple[str, ...]] = MappingProxyType(
    {Extra.APPLY: _APPLY, Extra.LOCAL: (*_APPLY, "pymysqlreplication")}
)


def check_extra(extra: Extra, *, user: str) -> None:
    """Raise Fatal MR-8011 if a module of ``extra`` is not installed. ``user`` is the command that needs it."""
    missing = [name for name in MODULES[extra] if find_spec(name) is None]
    if missing:
        raise Fatal(
            "MR-8011",
            f"{user} needs {' and '.join(missing)}, which this environment does not have",
            fix="In the folder with the wheel and `constraints.txt`: `pip install -c constraints.txt"
            f' "$(ls millrace-*.whl)[{extra}]"`. In a checkout: `make setup`.',
        )


if __name__ == "__main__":
    print(check_one_root())
