"""No folder of tests takes more than its share of the CPU time of `make test`."""

from tests.kit.paths import ROOT
from tests.kit.run.budgets import BUDGETS_S, over_budget
from tests.kit.run.plan import stored_costs

MEASURED_MIN = 0.9  # of the files; fewer are no picture of a whole run


def test_stored_costs_keep_to_the_budgets_of_folders() -> None:
    """Judged by earlier runs on this machine, once nearly all files have run here."""
    files = {
        str(path.relative_to(ROOT))
        for folders in BUDGETS_S
        for folder in folders
        for path in (ROOT / "tests" / folder).rglob("test_*.py")
    }
    costs = {path: cost.cpu_s for path, cost in stored_costs().items() if path in files}
    if len(costs) >= MEASURED_MIN * len(files):
        assert over_budget(costs) == []


def test_folder_above_its_share_is_named_on_any_machine() -> None:
    """A machine of half the speed doubles all figures, and changes no verdict."""
    usual = {
        f"tests/{folders[0]}/test_{number}.py": seconds
        for number, (folders, seconds) in enumerate(BUDGETS_S.items())
    }
    slow = {path: 2 * seconds for path, seconds in usual.items()}
    assert over_budget(usual) == over_budget(slow) == []
    for costs in (usual, slow):
        grown = {**costs, "tests/stack/test_more.py": max(costs.values())}
        (line,) = over_budget(grown)
        assert line.startswith("tests/stack: ")
