"""The brokers of a Kafka cluster: where clients connect."""

from dataclasses import dataclass

_THIS_MACHINE = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True, slots=True)
class Brokers:
    """``bootstrap`` is host:port[,host:port]."""

    bootstrap: str

    def settings(self) -> dict[str, str | int | float]:
        """librdkafka's settings of a new client (``millrace.kafka.KafkaAccess``)."""
        return {"bootstrap.servers": self.bootstrap}

    def shares_address(self, other: "Brokers") -> bool:
        """True if both name a common address. Kafka detects other names of a broker."""
        return not self._addresses().isdisjoint(other._addresses())

    def _addresses(self) -> set[str]:
        """The brokers as ``host:port``, with one name for this machine."""
        found = set()
        for server in self.bootstrap.lower().split(","):
            host, _, port = server.strip().rpartition(":")
            found.add(f"{'localhost' if host in _THIS_MACHINE else host}:{port}")
        return found

    def __str__(self) -> str:
        return self.bootstrap
