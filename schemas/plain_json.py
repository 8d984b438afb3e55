"""JSON from outside: plain values whose texts can be written again."""

import json


def load_json(content: bytes | str) -> object:
    """The value; ValueError for anything else, half a surrogate pair and what is nested too deep among it.

    Python takes ``"\\ud800"`` for text that no file, terminal or server takes.
    """
    try:
        plain: object = json.loads(content)
        json.dumps(plain, ensure_ascii=False).encode()
    except RecursionError as exc:
        raise ValueError("nested too deep") from exc
    return plain
