"""A schema by its id from a registry: the fallback for a record whose schema the topic did not show."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable

from millrace.errors import Fatal, Retryable

ANSWER_S = 10.0


def look_up_at(url: str) -> Callable[[int], str]:
    """A look-up at ``url``; "" has nothing."""

    def look_up(schema_id: int) -> str:
        if not url:
            raise Fatal("MR-5033", f"no schema of id {schema_id}, and no registry to ask")
        try:
            with urllib.request.urlopen(
                f"{url.rstrip('/')}/schemas/ids/{schema_id}", timeout=ANSWER_S
            ) as answer:
                return str(json.load(answer)["schema"])
        except urllib.error.HTTPError as exc:
            raise Fatal(
                "MR-5033", f"the registry has no schema of id {schema_id}: {exc.code}"
            ) from exc
        except (OSError, ValueError, LookupError) as exc:
            raise Retryable("MR-5033", f"the registry at {url} does not answer: {exc}") from exc

    return look_up
