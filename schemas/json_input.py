"""Parses JSON from outside and accepts only values that can be written again as UTF-8 JSON."""

import json
import math
from typing import Never


def load_json(content: bytes | str) -> object:
    """The value; ValueError for invalid JSON, a lone surrogate, NaN or Infinity, and JSON that is nested too deeply.

    Python accepts ``"\\ud800"`` as text, but no file, terminal or server does. It reads ``1e999`` as Infinity.
    """
    try:
        plain: object = json.loads(content, parse_constant=_no_number, parse_float=_finite)
        json.dumps(plain, ensure_ascii=False).encode()
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc
    return plain


def _no_number(text: str) -> Never:
    raise ValueError(f"{text} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        _no_number(text)
    return number
