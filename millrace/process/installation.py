"""Start-up check: all our packages load from one folder.

An old installed copy could otherwise mix silently with a checkout (``schemas`` of one, ``producer`` of the other).
Every entry point calls ``check_one_root()`` first.

Guarantees: all seven packages are found, below one folder. Not checked: versions inside that folder.
"""

import importlib.util
from collections.abc import Mapping
from pathlib import Path

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


if __name__ == "__main__":
    print(check_one_root())
