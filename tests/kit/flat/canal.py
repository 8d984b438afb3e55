"""Canal's flat messages of binlog files: its decoder, parser and message builder, without a server and without Kafka.

The structure of tables is what Canal's own parser makes of the DDL in the files (``MemoryTableMeta``). Each row is a
message, as Canal makes them with a hash of the key (``MQMessageUtils.messagePartition``). What it can't parse is left
out, and named in ``CanalFiles.errors``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError

from tests.kit.flat.jvm import Judged, file_events, without_metadata


@dataclass
class CanalFiles:
    """Reads files one after the other. ``jvm``: of ``judge_jvm``."""

    jvm: Any
    errors: list[str] = field(default_factory=list)

    def records(self, files: Sequence[Path]) -> Iterator[Judged]:
        """The messages of all rows, in the order of the binlog."""
        mysql = self.jvm.com.alibaba.otter.canal.parse.inbound.mysql
        self._convert = mysql.dbsync.LogEventConvert()
        nowhere = self.jvm.java.net.InetSocketAddress("127.0.0.1", 1)
        never = mysql.MysqlConnection(nowhere, "", "")  # the structures are in memory
        tables = mysql.dbsync.TableMetaCache(never, mysql.tsdb.MemoryTableMeta())
        self._convert.setTableMetaCache(tables)
        self._convert.setCharset(self.jvm.java.nio.charset.Charset.forName("UTF-8"))
        self._convert.setFilterQueryDml(True)
        self._workers = self.jvm.java.util.concurrent.Executors.newFixedThreadPool(1)
        try:
            for path in files:
                yield from self._records(path)
        finally:
            self._workers.shutdown()

    def _records(self, path: Path) -> Iterator[Judged]:
        gtid, number = "", 0
        for event in self._events(path):
            kind = event.getClass().getSimpleName()
            if kind in ("GtidLogEvent", "MariaGtidLogEvent"):
                gtid, number = event.getGtidStr(), 0
                continue
            try:
                entry = self._convert.parse(event, False)
            except Py4JJavaError as problem:
                self._note(problem)
                continue
            if entry is None or "Rows" not in kind or str(entry.getEntryType()) != "ROWDATA":
                continue
            for message in self._messages(entry):
                yield Judged(
                    message.getDatabase(),
                    message.getTable(),
                    (gtid, number),
                    "",
                    self._json(message),
                )
                number += 1

    def _events(self, path: Path) -> Iterator[Any]:
        binlog = self.jvm.com.taobao.tddl.dbsync.binlog
        decoder = binlog.LogDecoder(0, binlog.LogEvent.ENUM_END_EVENT)
        context = binlog.LogContext()
        context.setLogPosition(binlog.LogPosition(path.name))
        for octets in map(without_metadata, file_events(path)):
            try:
                event = decoder.decode(binlog.LogBuffer(octets, 0, len(octets)), context)
            except Py4JJavaError as problem:
                self._note(problem)
                continue
            if event is not None:
                yield event

    def _messages(self, entry: Any) -> Iterator[Any]:
        """One for each row."""
        canal = self.jvm.com.alibaba.otter.canal
        rows = getattr(canal.protocol, "CanalEntry$RowChange").parseFrom(entry.getStoreValue())
        entries = getattr(canal.protocol, "CanalEntry$Entry")
        for row in rows.getRowDatasList():
            one = rows.toBuilder().clearRowDatas().addRowDatas(row).build()
            alone = entries.newBuilder(entry).setStoreValue(one.toByteString()).build()
            packed = self.jvm.java.util.ArrayList()
            packed.add(alone)
            message = canal.protocol.Message(1, packed)
            utils = canal.connector.core.producer.MQMessageUtils
            (flat,) = utils.messageConverter(utils.buildMessageData(message, self._workers), 1)
            yield flat

    def _json(self, message: Any) -> str:
        fastjson = self.jvm.com.alibaba.fastjson2
        feature = getattr(fastjson, "JSONWriter$Feature")
        features = self.jvm.java.lang.reflect.Array.newInstance(feature.WriteNulls.getClass(), 1)
        features[0] = feature.WriteNulls
        return str(fastjson.JSON.toJSONString(message, features))

    def _note(self, problem: Py4JJavaError) -> None:
        exception = problem.java_exception
        while exception.getCause() is not None:
            exception = exception.getCause()
        self.errors.append(str(exception.toString())[:300])
