"""The checker of the project's English: what it finds, what it leaves, and where."""

import pytest

from tests.kit.english import findings


@pytest.mark.parametrize(
    ("sentence", "phrase"),
    [
        ("The record behind the hole is refused.", "behind"),
        ("It is killed before the commit or behind.", "or behind"),
        ("A barrier in front of the statement.", "in front of"),
        ("The file is written anew.", "anew"),
        ("It waits in vain.", "in vain"),
        ("An operator mends it.", "mends"),
        ("The table lacks a column.", "lacks"),
        ("A task that is gone for good.", "for good"),
        ("Changed by hand.", "by hand"),
        ("The worker lets it go.", "lets it go"),
        ("The lease is given up.", "given up"),
        ("It hears of the change.", "hears of"),
        ("What stands there was written before.", "stands"),
        ("A port that nobody uses.", "nobody"),
        ("Written by somebody else.", "somebody"),
        ("The task goes on by itself.", "goes on"),
        ("The status tells the reason.", "tells"),
        ("An error is told once.", "told"),
        ("A topic of its own.", "of its own"),
        ("It holds. Who asks again, waits.", ". Who asks again, waits."),
    ],
)
def test_phrase_is_found_in_comment_literal_and_page(sentence: str, phrase: str) -> None:
    """The same sentence as a comment, as a docstring's second line, as a message and as Markdown."""
    sources = {
        f"value = 1\n# {sentence}\n": 2,
        f'def f():\n    """First.\n\n    {sentence}\n    """\n': 4,
        f'raise ValueError("{sentence}")\n': 1,
        f'raise ValueError(f"{{name}}: {sentence}")\n': 1,
    }
    for source, line in sources.items():
        assert [found[:2] for found in findings(source, is_python=True)] == [(line, phrase)]
    assert [found[1] for found in findings(sentence, is_python=False)] == [phrase]


@pytest.mark.parametrize(
    "sentence",
    [
        "The replica is far behind.",
        "The replica lags behind the primary.",
        "A server behind a proxy, or a deposed primary behind a network partition.",
        "MR stands for Millrace.",
        "For lack of memory.",
        "The worker is told to stop.",
        "Tell the operator to wait.",
        "The bitmaps of its own run.",
        "It gives up after three attempts.",
        "Read `what_stands` and ``lacking(it)``.",
        "The server is about to stop.",
    ],
)
def test_good_english_is_left_alone(sentence: str) -> None:
    """A checker that cries wolf is switched off."""
    assert findings(f"# {sentence}\n", is_python=True) == []
    assert findings(sentence, is_python=False) == []


def test_phrase_across_lines_is_found() -> None:
    """A comment, a wrapped literal and a page break lines where the formatter wants."""
    comment = "# A barrier in\n# front of it.\n"
    literal = 'text = (\n    "a barrier in"\n    " front of it"\n)\n'
    for source, line in ((comment, 1), (literal, 2)):
        assert [found[:2] for found in findings(source, is_python=True)] == [(line, "in front of")]
    page = "One.\nA barrier in\nfront of it.\n"
    assert [found[:2] for found in findings(page, is_python=False)] == [(2, "in front of")]


def test_code_is_not_prose() -> None:
    """Identifiers, fields of f-strings, fences, indented blocks and link targets."""
    assert findings('told = f"{told} {lacks(nobody)}"\n', is_python=True) == []
    assert (
        findings("```sh\nmend\n```\n\n    mend\n\n[it](by/hand/mend.md)\n", is_python=False) == []
    )


@pytest.mark.parametrize(
    ("docstring", "count"),
    [
        ("What a task needs.", 1),
        ("Who asks.", 1),
        ("Of every test.", 1),
        ("What is a task?", 0),
        ("Whether it runs.", 0),
        ("A task. What it needs is below.", 0),
    ],
)
def test_docstring_begins_with_an_actor(docstring: str, count: int) -> None:
    """Only the first words of a docstring; other literals may begin so."""
    assert len(findings(f'"""{docstring}"""\n', is_python=True)) == count
    assert findings(f'value = "{docstring}"\n', is_python=True) == []


def test_name_of_a_test_is_short_and_plain() -> None:
    """Ten words after ``test``, and none of the phrases."""
    ten = "a_b_c_d_e_f_g_h_i_j"
    assert findings(f"def test_{ten}() -> None: ...\n", is_python=True) == []
    found = findings(
        f"\ndef test_{ten}_k() -> None: ...\ndef test_it_goes_on() -> None: ...\n", is_python=True
    )
    assert [entry[:2] for entry in found] == [(2, "a name of 11 words"), (3, "goes on")]
