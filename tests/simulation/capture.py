"""A capture worker's process: the steps of ``producer.task.capture`` in sequence instead of in threads.

Real: lease, publisher, receiver, dump stream, relay log, converter. Models: ZooKeeper, the partition, the socket.
"""

import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast
from unittest import mock

from millrace.producer.convert.converter import Converter, ConverterSource
from millrace.producer.publish.codec import RecordCodec
from millrace.producer.publish.config import PublisherConfig, PublisherLimits
from millrace.producer.publish.opening import Basis, TailHint
from millrace.producer.publish.publisher import Publisher
from millrace.producer.relay.durable_end import SyncPolicy
from millrace.producer.relay.reader import RelayReader
from millrace.producer.relay.writer import RelayLog
from millrace.producer.source.connection import Login
from millrace.producer.source.receive import receiver as receiving
from millrace.producer.source.receive.dump import ReplicaIdentity
from millrace.producer.source.receive.receiver import Receiver, ReceiverSource
from millrace.producer.source.set_stream import Upstream
from millrace.producer.task.capture import (
    converter_factory,
    resume_open_transaction,
    start_at_first_file,
    wait_for_start,
)
from millrace.schemas.documents import Brokers, TableFilter, Tls, TlsMode
from millrace.schemas.documents.model import Member
from millrace.schemas.gtid import Flavour, GtidPosition, parse_gtid_set
from millrace.schemas.place import Coordinates
from millrace.schemas.progress import Progress
from millrace.schemas.record.control import CONTROL_SCHEMAS
from millrace.schemas.server_version import ServerVersion
from millrace.zk.lease.lease import Lease, acquire
from tests.kit.capture.converter import MemoryRegistry
from tests.simulation.gate import Process
from tests.simulation.model_kafka import ModelDriver, ModelTopic
from tests.simulation.model_zookeeper import TREE, ModelEnsemble, ModelSession
from tests.simulation.source import ModelSource

TASK, TOPIC, SET = "shop-capture", "shop", "shop"
LIMITS = PublisherLimits(
    resolved_interval_s=1e9,  # no clock decides here: only progress without records makes an idle resolved
    progress_interval_s=0.0,
    look_interval_s=1e9,
    stable_timeout_s=0.05,
    audit_timeout_s=0.3,
    publish_timeout_s=1.0,
)
WIRE_BYTES = 1 << 18
_SYNC = SyncPolicy(bytes_max=1 << 40, delay_ms=1 << 30)  # nothing is made durable by a clock


@dataclass
class Surroundings:
    """The servers of all capture processes; ``hint`` is the progress in the task's status."""

    source: ModelSource
    topic: ModelTopic
    ensemble: ModelEnsemble
    registry: MemoryRegistry
    root: Path
    hint: TailHint | None = None

    @property
    def flavour(self) -> Flavour:
        """The flavour of the source."""
        return self.source.binlog.flavour


@dataclass(frozen=True, slots=True)
class Portion:
    """The size of one step: bytes received before the connection is cut, and the batch's limits."""

    wire_bytes: int
    batch_bytes: int
    batches: int


class CaptureProcess:
    """One worker; ``step`` does the next step of its task's thread."""

    def __init__(self, name: str, world: Surroundings) -> None:
        self.process = Process(name)
        self.session = ModelSession(world.ensemble, self.process)
        self.directory = world.root / name
        self.lease: Lease | None = None
        self._world = world
        self._publisher: Publisher | None = None
        self._relay: RelayLog | None = None
        self._reader: RelayReader | None = None
        self._converter: Converter | None = None
        self._wanted: GtidPosition | None = None
        self._is_verified = False

    @property
    def relay_end(self) -> Coordinates | None:
        """The end for readers of its relay log, while it runs."""
        return None if self._relay is None else self._relay.end()

    def step(self, portion: Portion) -> None:
        """Start if necessary, receive, publish, report."""
        if self.lease is None:
            self._start()
        self._receive(portion.wire_bytes)
        self._publish(portion)

    def shut_down(self) -> None:
        """End as the runner does: close and join everything. The caller keeps the lease."""
        if self._reader is not None:
            self._reader.close()
        if self._relay is not None:
            self._relay.close()
        if self._publisher is not None:
            self._publisher.discard()
        self._publisher = self._relay = self._reader = self._converter = None

    def release(self) -> None:
        """Release the lease, if possible."""
        lease, self.lease = self.lease, None
        if lease is not None:
            lease.release()

    def _start(self) -> None:
        world = self._world
        self.lease = acquire(self.session, TREE, task=TASK, worker=self.process.name)
        config = PublisherConfig(
            brokers=Brokers("127.0.0.1:1"),
            topic=TOPIC,
            transactional_id="model/0",
            epoch=self.lease.epoch,
            worker=self.process.name,
            set=SET,
            flavour=world.flavour,
            limits=LIMITS,
        )
        ids = {
            kind: world.registry(schema.subject(TOPIC), schema.text)
            for kind, schema in CONTROL_SCHEMAS.items()
        }
        self._publisher = Publisher.open_with(
            ModelDriver(world.topic, self.process),
            config,
            codec=RecordCodec(config, ids),
            verify_lease=self.lease.verify,
            basis=Basis(Progress(parse_gtid_set(world.flavour, ""), None, 0), world.hint),
        )
        self._report()
        progress = self._publisher.progress
        is_first = progress.gtid_set.is_empty and progress.open is None
        self._wanted = None if is_first else progress.gtid_set
        self._relay = RelayLog.open(self.directory, flavour=world.flavour, policy=_SYNC)
        self._reader = RelayReader(self._relay)
        self._is_verified = False

    def _receive(self, wire_bytes: int) -> None:
        assert self._relay is not None
        source = ReceiverSource(
            member=Member(self.process.name, 3306),
            login=Login(user="millrace", password="", tls=Tls(TlsMode.DISABLED)),
            replica=ReplicaIdentity.for_set(SET),
        )
        stop = threading.Event()
        with _dialling(lambda: _Connection(self._world.source, wire_bytes, stop)):
            receiver = Receiver(source, self._relay, wanted=self._wanted)
            try:
                receiver.run(stop)
            finally:
                self._is_verified |= receiver.verified.is_set()

    def _publish(self, portion: Portion) -> None:
        assert self._publisher is not None
        converter = self._converter or self._made_converter()
        if converter is None:
            return
        self._converter = converter
        for _ in range(portion.batches):
            batch = converter.next_batch(rows_max=1000, bytes_max=portion.batch_bytes, timeout_s=0)
            if batch is None:
                self._publisher.idle()
                break
            self._publisher.publish(batch)
            assert self._reader is not None
            self._reader.release(batch.coordinates)
        self._publisher.drain()
        self._report()

    def _made_converter(self) -> Converter | None:
        assert self._publisher is not None
        assert self._relay is not None
        assert self._reader is not None
        progress = self._publisher.progress
        stream = cast(Upstream, _Stream(self._wanted, self._relay, self._is_verified))
        at = wait_for_start(stream, self._reader, progress=progress, stop=_Once())
        if at is None:
            return None
        if progress.gtid_set.is_empty and progress.open is None:
            progress = start_at_first_file(stream, at, progress)
        source = ConverterSource(
            SET, TASK, self._world.flavour, TOPIC, TableFilter(exclude=("shop.hidden",))
        )
        convert = converter_factory(source, self._reader, self._world.registry)
        if progress.open is None:
            return convert(progress, at)
        resumed = resume_open_transaction(
            self._publisher, stream, self._reader, convert=convert, stop=_Once()
        )
        return None if resumed is None else convert(resumed.progress, resumed.at)

    def _report(self) -> None:
        """The status, as ``producer.task.capture`` writes and reads it."""
        assert self._publisher is not None
        hint = self._publisher.hint
        if hint.progress.open is None:
            self._world.hint = replace(hint)


class _Once(threading.Event):
    """A stop event for a loop that must run once."""

    def __init__(self) -> None:
        super().__init__()
        self._looks = 0

    def is_set(self) -> bool:
        self._looks += 1
        return self._looks > 1

    def wait(self, timeout: float | None = None) -> bool:
        return False


@dataclass
class _Stream:
    """The interface of a set's stream that ``producer.task.capture`` uses."""

    wanted: GtidPosition | None
    relay: RelayLog
    is_verified: bool

    @property
    def _relay(self) -> RelayLog:
        return self.relay

    def first(self, reader: RelayReader) -> Coordinates | None:
        """Call the real function with its inputs."""
        return Upstream.first(cast(Upstream, self), reader)

    def may_start_at(self, at: Coordinates) -> bool:
        """There is one member."""
        return True

    def check(self) -> None:
        """Nothing to check: the receiver runs in the same thread, and its errors reach the caller."""


class _Connection:
    """``MySqlSession`` on the model."""

    def __init__(self, source: ModelSource, wire_bytes: int, stop: threading.Event) -> None:
        self._source = source
        self._wire_bytes = wire_bytes
        self._stop = stop
        self.member = "model"
        ((self.version_text,),) = (row.values() for row in source.answer("SELECT VERSION()"))
        self.version = ServerVersion.parse(str(self.version_text))
        self.flavour = self.version.flavour

    def __enter__(self) -> "_Connection":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def named(self, sql: str) -> list[Mapping[str, object]]:
        return list(self._source.answer(sql))

    def command(self, command: int, payload: bytes) -> None:
        pass

    def start_stream(self, command: int, payload: bytes) -> "_Socket":
        (pos,) = struct.unpack_from("<I", payload)
        wire = self._source.dump(payload[10:].decode(), pos)
        return _Socket(wire[: self._wire_bytes], self._stop)


class _Socket:
    """Returns this many bytes, then nothing; then it asks the receiver to end."""

    def __init__(self, wire: bytes, stop: threading.Event) -> None:
        self._wire = wire
        self._stop = stop

    def settimeout(self, timeout_s: float) -> None:
        pass

    def recv_into(self, buffer: memoryview) -> int:
        if not self._wire:
            self._stop.set()
            raise TimeoutError
        count = min(len(buffer), len(self._wire))
        buffer[:count] = self._wire[:count]
        self._wire = self._wire[count:]
        return count


@contextmanager
def _dialling(dial: Callable[[], _Connection]) -> Iterator[None]:
    """Every connection of the receiver goes to ``dial``."""
    with mock.patch.object(receiving, "connect_member", side_effect=lambda *_: dial()):
        yield
