"""The extras of the package: what ``pip install millrace`` leaves out.

    millrace           a capture host: worker, scheduler, registry, status and every command about sets and tasks
    millrace[apply]    the apply driver: PySpark and pandas
    millrace[local]    ``up``, ``demo``, ``bench``: apply, ZooKeeper and Ivy out of PySpark, and a peer to measure
    millrace[dev]      all of these and the tools for tests

Guarantees: a command whose extra is missing ends with MR-8011 and the pip command, before it imports anything of it.
Not done here: versions; pip compares them when it installs.
"""

from collections.abc import Mapping
from enum import StrEnum
from importlib.util import find_spec
from types import MappingProxyType

from millrace.errors import Fatal


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
