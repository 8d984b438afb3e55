"""How much CPU time the folders of `make test` may take, and whether they keep to it.

A budget is in CPU seconds of the machine for which it was written, so a slow machine can't be judged by it. Judged is
the share of the whole: a group of folders is over its budget if it takes ``SLACK`` times its share. The runner prints
the seconds beside the budgets after each run. A test file that costs more than a few seconds replaces another one, or
runs in `make chaos`.
"""

from collections.abc import Mapping

BUDGETS_S: Mapping[tuple[str, ...], float] = {
    ("unit", "property", "contracts"): 160.0,
    ("integration",): 490.0,
    ("fault",): 130.0,
    ("stack",): 90.0,
}
SLACK = 1.5


def used_s(costs: Mapping[str, float]) -> dict[tuple[str, ...], float]:
    """CPU seconds of each group, from those of files (``tests/FOLDER/…``)."""
    return {
        folders: sum(cpu_s for path, cpu_s in costs.items() if _folder(path) in folders)
        for folders in BUDGETS_S
    }


def over_budget(costs: Mapping[str, float]) -> list[str]:
    """The groups whose share is too large, each with its figures."""
    used, budget_s = used_s(costs), sum(BUDGETS_S.values())
    whole_s = sum(used.values())
    return [
        f"{_title(folders)}: {used[folders]:.0f} of {whole_s:.0f} CPU s, "
        f"its share is {of_group_s:.0f} of {budget_s:.0f}"
        for folders, of_group_s in BUDGETS_S.items()
        if used[folders] * budget_s > SLACK * of_group_s * whole_s
    ]


def budget_lines(costs: Mapping[str, float]) -> list[str]:
    """A line for each group that ran: its CPU seconds and its budget."""
    return [
        f"{cpu_s:7.1f} CPU s in {_title(folders)}, budget {BUDGETS_S[folders]:.0f}"
        for folders, cpu_s in used_s(costs).items()
        if cpu_s
    ]


def _folder(path: str) -> str:
    first, _, rest = path.partition("/")
    return rest.partition("/")[0] if first == "tests" else ""


def _title(folders: tuple[str, ...]) -> str:
    return ", ".join(f"tests/{folder}" for folder in folders)
