"""Every mutant finds what it takes away: a guard that was renamed or moved is noticed before `make mutants` runs."""

import pytest

from tests.mutants.catalogue import LEVELS
from tests.mutants.simulation_guards import GUARDS


def test_guards_that_mutants_take_away_exist() -> None:
    """Each is removed and put back; nothing is run without it."""
    for mutant in (mutant for mutants in LEVELS.values() for mutant in mutants):
        with pytest.MonkeyPatch.context() as patch:
            try:
                mutant.off(patch)
            except AttributeError as gone:
                raise AssertionError(f"mutant {mutant.name!r}: {gone}") from gone
    for guard in GUARDS:
        with guard.taken_away():
            pass
