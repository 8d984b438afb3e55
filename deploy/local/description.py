"""The description of a local stack: the output of ``millrace up --json``."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from millrace.home_folder import STACK, local_stack_name

NAME = "stack.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """A database server, and a login with all privileges on it."""

    set: str
    role: str
    host: str
    port: int
    user: str
    password: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAddresses:
    """The addresses and folders of everything else."""

    kafka: str
    zookeeper: str
    registry: str
    home: str
    relay_dir: str
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StackDescription:
    """One running stack. ``tls_ca``: the CA of a secured one, which has TLS and logins everywhere."""

    source: tuple[ServerAddress, ...]
    targets: tuple[ServerAddress, ...]
    services: ServiceAddresses
    capture_tasks: tuple[str, ...]
    apply_tasks: tuple[str, ...]
    tls_ca: str = ""

    def as_json(self) -> dict[str, object]:
        return {
            "source": [asdict(server) for server in self.source],
            "targets": [asdict(server) for server in self.targets],
            **asdict(self.services),
            "tasks": {"capture": list(self.capture_tasks), "apply": list(self.apply_tasks)},
            **({"tls_ca": self.tls_ca} if self.tls_ca else {}),
        }

    def as_text(self, name: str) -> str:
        """Text for people: where to connect, and the next commands. ``name`` is the stack's."""
        primary, target = self.source[0], self.targets[0]
        trust = f" --ssl-ca={self.tls_ca}" if self.tls_ca else ""
        return (
            f"source    mysql -h {primary.host} -P {primary.port} -u {primary.user} -p'{primary.password}'{trust}\n"
            f"target    mysql -h {target.host} -P {target.port} -u {target.user} -p'{target.password}'{trust}\n"
            f"kafka     {self.services.kafka}   topic {self.services.topic}\n"
            f"zookeeper {self.services.zookeeper}\nregistry  {self.services.registry}\n"
            "\nnext      " + "\n          ".join(self._next_steps(name))
        )

    def _next_steps(self, name: str) -> list[str]:
        is_named = name != local_stack_name({})
        return [
            *([f"export {STACK}={name}"] if is_named else []),
            "millrace status -w",
            f"millrace topic tail {self.services.topic}",
            "millrace sql source",
            f"millrace down --name {name}" if is_named else "millrace down",
        ]

    def write(self, folder: Path) -> None:
        """Save it for later commands. Only its owner can read it, because it holds passwords."""
        scratch = folder / (NAME + ".new")
        scratch.touch(mode=0o600)
        scratch.write_text(json.dumps(self.as_json(), indent=2))
        scratch.rename(folder / NAME)

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """The description in ``folder``. None if the stack never ran completely."""
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
            tls_ca=plain.get("tls_ca", ""),
        )
