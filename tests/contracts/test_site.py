"""The site has each page of the documentation, in its menu and in llms.txt."""

import re

import yaml

from millrace.deploy.site import hooks
from tests.kit.paths import ROOT

CONFIG = ROOT / "deploy/site/mkdocs.yml"


def _places(menu: object) -> list[str]:
    """The pages of a part of the menu, in its order."""
    match menu:
        case str():
            return [menu]
        case dict():
            return [place for part in menu.values() for place in _places(part)]
        case list():
            return [place for part in menu for place in _places(part)]
    raise AssertionError(menu)


def test_menu_has_each_page_once() -> None:
    """A page that the menu does not have is found by no reader."""
    places = _places(yaml.safe_load(CONFIG.read_text())["nav"])
    pages = [path.relative_to(hooks.DOCS).as_posix() for path in hooks.DOCS.rglob("*.md")]
    linked = [place for place, path in hooks.linked_pages().items() if hooks.is_in_menu(path)]
    assert sorted(places) == sorted({*pages, *linked})


def test_llms_txt_describes_each_page() -> None:
    """Each line has the first sentence of its page. It is short, and has no link."""
    places = _places(yaml.safe_load(CONFIG.read_text())["nav"])
    text = hooks.llms_text(places, dict.fromkeys(places, "All"))
    lines = re.findall(r"^- \[.+?\]\((\S+)\)(?:: (.+))?$", text, re.MULTILINE)
    assert [place for place, _ in lines] == places
    wrong = [
        place for place, sentence in lines if not 15 <= len(sentence) <= 300 or "](" in sentence
    ]
    assert wrong == ["decisions/index.md"]  # a list of the pages that follow it


def test_links_lead_to_places_of_the_site() -> None:
    """A page outside docs/, a folder, another page's anchor, and the row of an error's code."""
    text = (
        "[a](../README.md#two-commands) [b](schema/) [c](../examples/python/) [d](#here) MR-1001\n"
        "`[e](../README.md)` [MR-1002](errors.md) [f](https://example.org/MR-1003)"
    )
    assert hooks.with_links_of_site(text, "documents.md") == (
        "[a](overview.md#two-commands) [b](schema/index.md) [c](examples/python/index.md) [d](#here) "
        "[MR-1001](errors.md#mr-1001)\n"
        "`[e](../README.md)` [MR-1002](errors.md#mr-1002) [f](https://example.org/MR-1003)"
    )
