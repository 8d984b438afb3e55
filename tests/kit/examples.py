"""How many examples a property test tries: a part of them in `make test`, all in `make chaos` and `make mutants`."""

from typing import Any

from hypothesis import settings

ALL = 100  # Hypothesis' own number, which profiles without another one have
PART = 30  # in `make test`


def examples(count: int, **others: Any) -> settings:
    """``count`` examples, or the share of the current profile (``tests/conftest.py``), with these settings."""
    share = settings.default.max_examples if settings.default else ALL
    return settings(max_examples=max(1, count * share // ALL), **others)
