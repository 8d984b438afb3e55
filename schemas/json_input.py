"""Parses JSON from outside and accepts only values that can be written again as UTF-8."""

import json


def load_json(content: bytes | str) -> object:
    """The value; ValueError for invalid JSON, a lone surrogate and JSON that is nested too deeply.

    Python accepts ``"\\ud800"`` as text, but no file, terminal or server does.
    """
    try:
        plain: object = json.loads(content)
        json.dumps(plain, ensure_ascii=False).encode()
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc
    return plain
