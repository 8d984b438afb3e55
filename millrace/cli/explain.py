"""``millrace explain CODE``: prints an error code's entry in the catalogue, offline."""

import typer

from millrace.codes import CATALOGUE, PAGE
from millrace.errors import Fatal
from millrace.pages import page_text


def explain(
    code: str = typer.Argument("", help="MR-1234 or 1234; omit it to list all codes."),
    page: bool = typer.Option(
        False, "--markdown", help="Print all codes as a page (docs/errors.md)."
    ),
) -> None:
    """Explain what an error code means, why it happens and how to fix it."""
    if page:
        print(page_text(PAGE), end="")
        return
    if not code:
        for entry in CATALOGUE.values():
            print(f"{entry.code}  {entry.title}")
        return
    chosen = CATALOGUE.get(code.upper()) or CATALOGUE.get(f"MR-{code}")
    if chosen is None:
        raise Fatal("MR-4207", f"there is no code {code[:40]!r}")
    print(f"{chosen.code}  {chosen.title}\n\n  why   {chosen.cause}\n  fix   {chosen.fix}")
    print(f"  next  {chosen.branch.value}")
