"""Names that are near to one that was not found, for messages."""

from collections.abc import Iterable
from difflib import get_close_matches

NEAR_MAX = 3


def near_names(name: str, known: Iterable[str]) -> str:
    """Such as "; did you mean shop.Orders or shop.order?"; "" if none is near. The case does not matter."""
    folded = {one.casefold(): one for one in sorted(known)}
    near = [folded[one] for one in get_close_matches(name.casefold(), folded, n=NEAR_MAX)]
    return f"; did you mean {' or '.join(near)}?" if near else ""
