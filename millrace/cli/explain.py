"""``millrace explain CODE``: the catalogue's page of an error code, offline."""

import typer

from millrace.codes import CATALOGUE
from millrace.codes.page import markdown
from millrace.errors import Fatal


def explain(
    code: str = typer.Argument("", help="MR-1234, or 1234; without it all codes are listed."),
    page: bool = typer.Option(False, "--markdown", help="All of them as a page (docs/errors.md)."),
) -> None:
    """Say what an error code means, why it happens and what mends it."""
    if page:
        print(markdown(), end="")
        return
    if not code:
        for entry in CATALOGUE.values():
            print(f"{entry.code}  {entry.title}")
        return
    known = CATALOGUE.get(code.upper()) or CATALOGUE.get(f"MR-{code}")
    if known is None:
        raise Fatal("MR-4207", f"there is no code {code[:40]!r}")
    print(f"{known.code}  {known.title}\n\n  why  {known.cause}\n  fix  {known.fix}")
