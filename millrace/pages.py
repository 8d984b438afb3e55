"""The pages of the documentation that the program reads. Each row of their tables is an entry that exists nowhere else.

A checkout has them in ``docs/``, a wheel in ``millrace/docs/`` (``pyproject.toml``). MySQL and PostgreSQL keep the
texts of their errors in such a file, too.
"""

from pathlib import Path

_FOLDERS = (Path(__file__).parent / "docs", Path(__file__).parents[1] / "docs")


def page_text(name: str) -> str:
    """The whole page, such as ``errors.md``."""
    folder = next(folder for folder in _FOLDERS if (folder / name).exists())
    return (folder / name).read_text(encoding="utf-8")


def page_tables(name: str) -> dict[str, list[list[str]]]:
    """The cells of each row, without the head of the table, by the title of the section."""
    tables = {}
    for section in page_text(name).split("\n## ")[1:]:
        title, *lines = section.splitlines()
        rows = [line for line in lines if line.startswith("| ")]
        tables[title] = [row[2:-2].split(" | ") for row in rows[1:]]
    return tables
