"""The least that questions to a server need of a session; both adapters over PyMySQL have it."""

from collections.abc import Mapping, Sequence
from typing import Protocol


class Session(Protocol):
    """A session on one server. Its user closes it."""

    @property
    def name(self) -> str:
        """The server as host:port."""
        ...

    @property
    def version_text(self) -> str:
        """The result of VERSION()."""
        ...

    def named(self, sql: str) -> Sequence[Mapping[str, object]]:
        """The rows of a statement, each with the names of its columns."""
        ...

    def close(self) -> None:
        """End it."""
        ...
