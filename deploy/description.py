"""What a local stack tells about itself: ``millrace up --json``."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

NAME = "stack.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """A database server and a login that may do everything on it."""

    set: str
    role: str
    host: str
    port: int
    user: str
    password: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAddresses:
    """Everything that is not a database server."""

    kafka: str
    zookeeper: str
    registry: str
    home: str
    relay_dir: str
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StackDescription:
    """One running stack."""

    source: tuple[ServerAddress, ...]
    targets: tuple[ServerAddress, ...]
    services: ServiceAddresses
    capture_tasks: tuple[str, ...]
    apply_tasks: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        """The object that ``--json`` prints."""
        return {
            "source": [asdict(server) for server in self.source],
            "targets": [asdict(server) for server in self.targets],
            **asdict(self.services),
            "tasks": {"capture": list(self.capture_tasks), "apply": list(self.apply_tasks)},
        }

    def as_text(self) -> str:
        """For people: where to connect and what to type next."""
        primary, target = self.source[0], self.targets[0]
        return (
            f"source    mysql -h {primary.host} -P {primary.port} -u {primary.user} -p'{primary.password}'\n"
            f"target    mysql -h {target.host} -P {target.port} -u {target.user} -p'{target.password}'\n"
            f"kafka     {self.services.kafka}   topic {self.services.topic}\n"
            f"zookeeper {self.services.zookeeper}\nregistry  {self.services.registry}\n"
            f"\nnext      millrace status -w\n          millrace topic tail {self.services.topic}\n"
            f"          millrace down"
        )

    def write(self, folder: Path) -> None:
        """Keep it for later commands; readable by its owner alone, because of the passwords."""
        scratch = folder / (NAME + ".new")
        scratch.touch(mode=0o600)
        scratch.write_text(json.dumps(self.as_json(), indent=2))
        scratch.rename(folder / NAME)

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """The description in ``folder``; None when the stack was never complete."""
        if not (folder / NAME).is_file():
            return None
        plain = json.loads((folder / NAME).read_text())
        names = ServiceAddresses.__dataclass_fields__
        return cls(
            source=tuple(ServerAddress(**server) for server in plain["source"]),
            targets=tuple(ServerAddress(**server) for server in plain["targets"]),
            services=ServiceAddresses(**{name: plain[name] for name in names}),
            capture_tasks=tuple(plain["tasks"]["capture"]),
            apply_tasks=tuple(plain["tasks"]["apply"]),
        )
