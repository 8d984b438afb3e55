"""Makes the site from the project's own pages: the hooks that MkDocs calls for mkdocs.yml.

The pages in docs/ and those of PAGES are written for readers of the repository. Their links may lead to any file of it.
In the site, such a file or folder becomes a page too, with the text of its files. So there is one source for both, and
each link that MkDocs can't resolve fails the build.

The site also has each page as Markdown, and ``llms.txt``, which lists them (llmstxt.org).
"""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from millrace.deploy.site.cast import Recording, Session, read, sessions_of, shape
from millrace.home_folder import home

if TYPE_CHECKING:  # the functions that read pages run without MkDocs
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.nav import Navigation
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# Pages outside docs/, by their place in the site.
PAGES = {
    "overview.md": ROOT / "README.md",
    "architecture.md": ROOT / "ARCHITECTURE.md",
    "contributing.md": ROOT / "CONTRIBUTING.md",
    "security-policy.md": ROOT / "SECURITY.md",
    "changelog.md": ROOT / "CHANGELOG.md",
    "examples/index.md": ROOT / "examples/README.md",
}
_PLACES = {path: place for place, path in PAGES.items()}
_LANGUAGES = {".py": "python", ".js": "javascript", ".rs": "rust", ".sh": "sh", ".yml": "yaml"}
# Code is kept as it is. In other text: the target of a link, and the code of an error.
_LINK = re.compile(
    r"(?P<kept>^ *(?P<fence>```+).*?^ *(?P=fence)|`[^`\n]+`|^#.*?$|^    .*?$)"
    r"|(?P<text>\[[^\]\[]*\])\((?P<target>[^)\s]+)\)|(?P<code>\bMR-\d{4}\b)",
    re.DOTALL | re.MULTILINE,
)
_ERRORS = "errors.md"
_ERROR_ROW = re.compile(r"^\| (MR-\d{4}) \|", re.MULTILINE)
_LOADED = re.compile(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=.?(?:https?:)?//[^ >]+")
_PROSE = re.compile(r"[A-Z`\[*][^|]*")  # the begin of a paragraph, not a table, a list or code
_SENTENCE = re.compile(r".+?\.(?= [A-Z`\[]|$)")


# ---- called by MkDocs ----


def on_config(config: "MkDocsConfig") -> None:
    """Give headings the anchors that the repository's pages use."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = lambda title, _: anchor_of(title)


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add the pages that links of other pages need."""
    from mkdocs.structure.files import File, InclusionLevel

    for place, path in linked_pages().items():
        in_menu = InclusionLevel.UNDEFINED if is_in_menu(path) else InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, place, content=text_of(path), inclusion=in_menu))
    for page in DOCS.glob("*.md"):
        for session, recording in recordings_of(page.read_text()):
            name = f"recordings/{session.name}"
            files.append(File.generated(config, f"{name}.svg", content=recording.picture()))
            files.append(File.generated(config, f"{name}.cast", content=recording.cast()))
    return files


def on_nav(nav: "Navigation", config: "MkDocsConfig", files: "Files") -> None:
    """Add the list of pages for language models."""
    from mkdocs.structure.files import File

    places = [page.file.src_uri for page in nav.pages]
    sections = {page.file.src_uri: _section(page) for page in nav.pages}
    files.append(File.generated(config, "llms.txt", content=llms_text(places, sections)))


def on_page_markdown(markdown: str, page: "Page", config: "MkDocsConfig", **_: object) -> str:
    """Make the page's links those of the site, and keep its Markdown beside its HTML."""
    text = with_links_of_site(markdown, page.file.src_uri)
    html = with_recordings(text)
    copy = Path(config.site_dir, page.file.src_uri)
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(text)
    return html


def on_post_page(output: str, page: "Page", **_: object) -> None:
    """Refuse a page that loads anything from another host.

    Raises ValueError.
    """
    if found := _LOADED.search(output):
        raise ValueError(f"{page.file.src_uri} loads {found[0]}")


def _section(page: "Page") -> str:
    """The title of the outermost section of the menu that has the page."""
    titles = [parent.title for parent in page.ancestors]
    return (titles[-1] if titles else None) or "Millrace"


# ---- pages and links ----


def source_of(place: str) -> Path:
    """The file or folder of the repository from which a page of the site is made."""
    if place in PAGES:
        return PAGES[place]
    if (DOCS / place).exists():
        return DOCS / place
    base = DOCS if (DOCS / place).parent.is_dir() else ROOT
    return base / Path(place).parent if place.endswith("/index.md") else base / place[: -len(".md")]


def place_of(path: Path) -> str:
    """The place in the site of a file or folder of the repository."""
    if path in _PLACES:
        return _PLACES[path]
    inside = path.relative_to(DOCS if path.is_relative_to(DOCS) else ROOT)
    if path.is_dir():
        return (inside / "index.md").as_posix()
    return inside.as_posix() if path.is_relative_to(DOCS) else f"{inside.as_posix()}.md"


def linked_pages() -> dict[str, Path]:
    """The files and folders that MkDocs does not find in docs/: PAGES, and those that links lead to."""
    waiting = [*DOCS.rglob("*.md"), *PAGES.values()]
    seen = set(waiting)
    while waiting:
        page = waiting.pop()
        for target in _targets(page):
            if target.exists() and target not in seen:
                seen.add(target)
                waiting.append(target)
    return {
        place_of(path): path for path in sorted(seen) if path.is_dir() or DOCS not in path.parents
    }


def is_in_menu(path: Path) -> bool:
    """Whether mkdocs.yml must name the page; the texts of examples and schemas are reached by links."""
    return path.suffix == ".md" or path == DOCS / "decisions"


def text_of(path: Path) -> str:
    """The Markdown of a page: the file itself, or the texts of a folder's files."""
    if path.suffix == ".md":
        return path.read_text()
    title = path.name.capitalize() if is_in_menu(path) else path.relative_to(ROOT).as_posix()
    parts = [f"# {title}"]
    for file in _tracked(path):
        name = file.relative_to(path).as_posix() if path.is_dir() else file.name
        if file.suffix == ".md":
            parts.append(f"- [{title_of(file)}]({name}): {first_sentence(file)}")
        else:
            language = _LANGUAGES.get(file.suffix, file.suffix[1:] or "text")
            parts.append(f"## {name}\n\n````{language}\n{file.read_text().rstrip()}\n````")
    return "\n\n".join(parts) + "\n"


def _tracked(path: Path) -> list[Path]:
    """The files of a folder that git knows, without what a build left there."""
    listed = subprocess.run(
        ["git", "ls-files", "--", str(path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / name for name in listed.stdout.splitlines()]


def links_of(text: str) -> Iterator[tuple[str, str]]:
    """The target and the anchor of each link of a Markdown text to another page, or to a heading of the page itself."""
    for found in _LINK.finditer(text):
        target, _, anchor = (found["target"] or ":").partition("#")
        if ":" not in target:
            yield target, anchor


def anchors_of(text: str) -> set[str]:
    """The anchors of a page's headings, as on GitHub."""
    outside = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    return {anchor_of(title) for title in re.findall(r"^#+ (.*)", outside, re.MULTILINE)}


def anchor_of(title: str) -> str:
    """The anchor of a heading, as on GitHub: its letters, digits, hyphens, and a hyphen for each space."""
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")


def _targets(path: Path) -> Iterator[Path]:
    """The files and folders to which the links of a page lead."""
    folder = path if path.is_dir() else path.parent
    for target, _ in links_of(text_of(path)):
        if target:
            yield Path(os.path.normpath(folder / target))


def with_links_of_site(markdown: str, place: str) -> str:
    """The text of a page with links to places of the site instead of files of the repository.

    Each code of an error becomes a link to its row, which has an anchor.
    """
    source = source_of(place)
    folder = source if source.is_dir() else source.parent
    start = Path(place).parent

    def replaced(found: re.Match[str]) -> str:
        if found["kept"]:
            return found[0]
        if found["code"]:
            link = f"[{found['code']}]({os.path.relpath(_ERRORS, start)}#{found['code'].lower()})"
            return found[0] if place == _ERRORS else link
        target, hash_sign, anchor = found["target"].partition("#")
        path = Path(os.path.normpath(folder / target))
        if not target or ":" in target or not path.exists():  # MkDocs reports what does not exist
            return found[0]
        if path == DOCS / _ERRORS and re.fullmatch(r"\[MR-\d{4}\]", found["text"]):
            hash_sign, anchor = "#", found["text"][1:-1].lower()
        return f"{found['text']}({os.path.relpath(place_of(path), start)}{hash_sign}{anchor})"

    text = _LINK.sub(replaced, markdown)
    if place == _ERRORS:
        text = _ERROR_ROW.sub(lambda row: f'| <span id="{row[1].lower()}">{row[1]}</span> |', text)
    return text


# ---- recordings ----


def recordings_of(text: str) -> Iterator[tuple[Session, Recording]]:
    """The sessions of a page that a test has recorded in this home folder, with the commands that the page has now."""
    for session in sessions_of(text):
        cast = home() / "site" / f"{session.name}.cast"
        if cast.exists():
            recording = read(cast.read_text())
            if list(map(shape, recording.commands())) == [shape(one) for one, _ in session.steps()]:
                yield session, recording


def with_recordings(text: str) -> str:
    """The text with a picture before each session that was recorded. The session itself can be opened below."""
    for session, _ in recordings_of(text):
        picture = f"![The session as it was recorded](recordings/{session.name}.svg)"
        cast = f"[The file for asciinema](recordings/{session.name}.cast)"
        summary = "<summary>The same as text</summary>"
        block = f"```console\n{session.block}```"
        shown = f'{picture}\n\n<details markdown="1">{summary}\n\n{block}\n\n{cast}\n\n</details>\n'
        text = text.replace(session.markdown, shown)
    return text


# ---- llms.txt ----


def title_of(path: Path) -> str:
    """The first heading of a page."""
    return text_of(path).partition("\n")[0].removeprefix("# ").replace("`", "")


def first_sentence(path: Path) -> str:
    """The first sentence of a page, without links and line breaks; of a folder nothing."""
    for block in text_of(path).split("\n\n")[1:]:
        if _PROSE.match(block):
            line = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(block.split()))
            found = _SENTENCE.match(line)
            return (found[0] if found else line).rstrip(":.")
    return ""


def llms_text(places: list[str], sections: dict[str, str]) -> str:
    """The list of the menu's pages, each with its first sentence."""
    lines = ["# Millrace", "", f"> {first_sentence(PAGES['overview.md'])}."]
    section = ""
    for place in places:
        if sections[place] != section:
            section = sections[place]
            lines += ["", f"## {section}", ""]
        path = source_of(place)
        sentence = first_sentence(path)
        lines.append(f"- [{title_of(path)}]({place})" + (f": {sentence}" if sentence else ""))
    return "\n".join(lines) + "\n"
