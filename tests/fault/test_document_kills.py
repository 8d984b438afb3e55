"""`millrace plan --execute` dies by SIGKILL at each of its fault points: all documents are written or none is."""

import json

import pytest

from millrace.cli import run
from millrace.zk.tree import store
from tests.fixtures.shell import CAPTURE, SHOP, Shell
from tests.kit.forked import killed_at

OTHER = SHOP.replace("set: shop", "set: crm")
POINTS = (store.BEFORE_COMMIT, store.AFTER_COMMIT)


@pytest.mark.parametrize("point", POINTS)
def test_killed_plan_writes_all_documents_or_none(shell: Shell, point: str) -> None:
    """A second run does what is left to do. Each document has exactly the revisions that were written."""
    shell("plan", "-f", shell.file(f"{SHOP}---{OTHER}---{CAPTURE}"), "--execute")
    moved = CAPTURE.replace("set: shop", "set: shop\ntopic: new")
    words = ["plan", "-f", shell.file(f"{SHOP}relay: always\n---{moved}"), "--prune", "--execute"]
    killed_at(f"{point}:kill", lambda: run(words))
    is_written = point == store.AFTER_COMMIT
    planned = json.loads(
        shell(*words[:-1], "--json", exit_code=0 if is_written else 1, stream="out")
    )
    actions = {each["name"]: each["action"] for each in planned["documents"]}
    if is_written:
        assert actions == {"shop": "keep", "shop-capture": "keep"}
    else:
        assert actions == {"crm": "delete", "shop": "change", "shop-capture": "change"}
    shell(*words)
    assert "nothing to do" in shell(*words)
    for kind, name in (("set", "shop"), ("set", "crm"), ("task", "shop-capture")):
        assert len(json.loads(shell(kind, "history", name, "--json"))) == 2
