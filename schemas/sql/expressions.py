"""Whether the value of a generated column may depend on settings of the session that writes the row. Pure.

A TIMESTAMP is read in the session's time zone, a name of a month in its ``lc_time_names``, and a CHAR, a rounded time
or a text that becomes a date by its ``sql_mode``. The row image has the value of the source's session; another session
computes another one.

``depends_on_session`` is False only for what it knows: columns of one family, and functions of that family, which give
the same value in every session. It is True for anything else, also if the expression cannot be read.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_TOKEN = re.compile(
    r"\s+|`(?P<column>(?:[^`]|``)+)`|(?P<text>'(?:[^'\\]|\\.|'')*')|(?P<number>\d+(?:\.\d+)?)"
    r"|(?P<word>[A-Za-z_][A-Za-z_0-9]*)|(?P<minus>-)|(?P<operator>[(),+*%=<>!&|^~])",
    re.DOTALL,
)
_ESCAPED = re.compile(r"_\w+\\'")  # MySQL escapes the quotes of the expression once more
_CHARSET = re.compile(r"_(?:utf8mb[34]|latin1|ascii|binary)")

_COMMON = {"and", "or", "not", "xor", "is", "null", "true", "false", "in", "between", "case"}
_COMMON |= {"when", "then", "else", "end", "if", "ifnull", "coalesce", "nullif", "isnull"}
_COMMON |= {"greatest", "least"}


@dataclass(frozen=True, slots=True)
class _Family:
    """``results``: the types that its values may have in the generated column."""

    columns: frozenset[str]
    functions: frozenset[str]
    results: frozenset[str]
    takes_texts: bool = False


_NUMBERS = frozenset(
    ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double")
)
_TEXTS = frozenset(
    {"varchar", "tinytext", "text", "mediumtext", "longtext", "json"}
    | {"varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
)
_ARITHMETIC = frozenset(("abs", "sign", "floor", "ceil", "ceiling", "mod", "div"))
_OF_TEXTS = frozenset(
    {"concat", "concat_ws", "lower", "lcase", "upper", "ucase", "trim", "ltrim", "rtrim", "left"}
    | {"right", "substr", "substring", "replace", "reverse", "hex", "unhex", "md5", "sha", "sha1"}
    | {"sha2", "crc32", "length", "octet_length", "char_length", "character_length", "locate"}
    | {"instr", "json_extract", "json_unquote", "json_value", "json_length", "json_valid"}
    | {"json_type", "cast", "as", "signed", "unsigned"}
)
_OF_DATES = frozenset(
    ("year", "month", "dayofmonth", "quarter", "hour", "minute", "second", "to_days", "weekday")
)
_FAMILIES = (
    _Family(_NUMBERS, _ARITHMETIC, _NUMBERS | {"bit", "year"}),
    _Family(_TEXTS, _OF_TEXTS, _TEXTS | _NUMBERS | {"char", "binary"}, takes_texts=True),
    _Family(frozenset(("date", "datetime")), _OF_DATES, _NUMBERS),
)


@dataclass(frozen=True, slots=True)
class Operand:
    """A column of the table. ``type_text`` is COLUMN_TYPE, ``base_type`` DATA_TYPE, in lower case."""

    name: str
    type_text: str
    base_type: str
    generated: bool


def depends_on_session(expression: str, result_type: str, columns: Iterable[Operand]) -> bool:
    """``expression`` as ``information_schema`` shows it. ``result_type``: DATA_TYPE of the generated column.

    ``result_type`` is "" for a part of a key, which has the type of its expression.
    """
    if _ESCAPED.search(expression):
        expression = re.sub(r"\\(.)", r"\1", expression, flags=re.DOTALL)
    by_name = {column.name.lower(): column for column in columns}
    used, words, kinds, at = list[Operand](), set[str](), set[str | None](), 0
    while at < len(expression):
        token = _TOKEN.match(expression, at)
        if token is None:
            return True
        at = token.end()
        kinds.add(token.lastgroup)
        if token["column"]:
            operand = by_name.get(token["column"].replace("``", "`").lower())
            if operand is None or operand.generated:
                return True
            used.append(operand)
        elif token["word"] and not _CHARSET.fullmatch(token["word"].lower()):
            words.add(token["word"].lower())
    # NO_UNSIGNED_SUBTRACTION decides about the sign
    if "minus" in kinds and (
        any("unsigned" in column.type_text for column in used)
        or "unsigned" in words
        or set(expression) & set("&|^~<>")
    ):
        return True
    return not any(
        (not result_type or result_type in family.results)
        and all(column.base_type in family.columns for column in used)
        and words <= _COMMON | family.functions
        and (family.takes_texts or "text" not in kinds)
        for family in _FAMILIES
    )
