"""Parses YAML text into plain values (``dict``, ``list``, ``str``, ``int``, ``float``, ``bool``, ``None``).

Surprises of YAML 1.1 are disabled: ``0-1-5`` and ``2001-12-14`` are text, not dates; ``1:30`` is text, not 90; only
``true`` and ``false`` are booleans. Duplicate keys, tags and aliases (which can grow without limit) are refused.
Raises only Fatal MR-4102. Never creates objects of other types.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import yaml

from millrace.errors import Fatal

TEXT_BYTES_MAX = 256 * 1024  # a quarter of ZooKeeper's default limit of 1 MiB per node
DEPTH_MAX = 20

STREAM_BYTES_MAX = 16 * 1024 * 1024  # a file with many documents

_ANOTHER_DOCUMENT = "expected a single document in the stream"  # text of PyYAML


def plain_from_yaml(text: str, *, origin: str = "document") -> object:
    """The one document in ``text``."""
    if len(text.encode(errors="replace")) > TEXT_BYTES_MAX:
        raise Fatal(
            "MR-4102",
            f"{origin} is larger than {TEXT_BYTES_MAX} bytes",
            fix="Make it shorter: a pattern with * or ? stands for many tables.",
        )
    with _refusals(origin):
        plain: object = yaml.load(text, Loader=_Loader)  # a SafeLoader, narrowed
        _check_text(plain)
    return plain


def plains_from_yaml(text: str, *, origin: str = "documents") -> list[object]:
    """All documents in ``text``, which ``---`` separates. Empty ones are left out."""
    if len(text.encode(errors="replace")) > STREAM_BYTES_MAX:
        raise Fatal("MR-4102", f"{origin} is larger than {STREAM_BYTES_MAX} bytes")
    with _refusals(origin):
        plains = [plain for plain in yaml.load_all(text, Loader=_Loader) if plain is not None]
        _check_text(plains)
    return plains


def _check_text(plain: object) -> None:
    """Half a surrogate pair is not text: a ValueError."""
    json.dumps(plain, ensure_ascii=False).encode()


@contextmanager
def _refusals(origin: str) -> Iterator[None]:
    """Every error of the parser in the block as Fatal MR-4102."""
    try:
        yield
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        if mark is not None and getattr(exc, "context", None) == _ANOTHER_DOCUMENT:
            raise Fatal(
                "MR-4102",
                f"{origin} contains more than one document: another begins at line {mark.line + 1}",
                fix="Put each document into its own file, or give the file to `millrace plan -f FILE`.",
            ) from None
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        what = getattr(exc, "problem", None) or getattr(exc, "reason", None) or type(exc).__name__
        # `from None`: the original error quotes the text, which may contain a secret
        raise Fatal("MR-4102", f"{origin} is not YAML{where}: {what}") from None
    except (ValueError, RecursionError) as exc:
        raise Fatal("MR-4102", f"{origin} is not YAML: {type(exc).__name__}") from None


def yaml_from_plain(plain: object) -> str:
    """Plain values as YAML, in the given order. ``plain_from_yaml`` is the inverse."""
    text: str = yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return text


class _Dumper(yaml.SafeDumper):
    """Quotes texts that a YAML reader would take for another type (as ``SafeDumper`` does)."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002  # PyYAML's own signature
        """Write equal values twice, because the parser refuses aliases."""
        return True


class _Loader(yaml.SafeLoader):
    """Plain values only."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  # PyYAML's own name
    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise _refused("an alias (*name) is not allowed", self)
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if getattr(event, "tag", None):
            raise _refused("a tag (!name) is not allowed", self)
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise _refused(f"nested deeper than {DEPTH_MAX}", self)
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def mapping(self, node: yaml.MappingNode) -> dict[object, object]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key is not text", key.start_mark
                )
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, "a key is given twice", key.start_mark
                )
            seen.add(key.value)
        # keys are names: `on: 1` has the key "on", `1: x` the key "1"
        return {key.value: self.construct_object(value, deep=True) for key, value in node.value}


def _refused(problem: str, loader: _Loader) -> yaml.YAMLError:
    mark = loader.peek_event().start_mark  # type: ignore[no-untyped-call]
    return yaml.composer.ComposerError(None, None, problem, mark)


_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.mapping)
for _tag, _pattern, _first in (
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", "~nN\0"),
    ("tag:yaml.org,2002:int", r"-?(?:0|[1-9][0-9]{0,30})", "-0123456789"),
    ("tag:yaml.org,2002:float", r"-?[0-9]{1,30}\.[0-9]{1,30}", "-0123456789"),
):
    _Loader.add_implicit_resolver(
        _tag, re.compile(rf"^(?:{_pattern})$"), [*_first.replace("\0", ""), ""]
    )
