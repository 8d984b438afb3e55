"""Java's Avro, from the jars of PySpark, in a JVM that Python drives."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from millrace.deploy.servers.programs import pyspark_jars
from millrace.jvm import java_program

_JARS = ("avro-1.*", "jackson-*", "commons-compress-*", "slf4j-api-*", "py4j-*")


class JavaAvro:
    """Reads and writes records with ``GenericDatumReader`` and ``GenericDatumWriter``."""

    def __init__(self, gateway: JavaGateway) -> None:
        self._jvm = gateway.jvm

    def __repr__(self) -> str:
        """Py4J's objects answer every attribute, so they can't be printed."""
        return "JavaAvro"

    def schema_text(self, text: str) -> str:
        """A schema as Java prints it after it has parsed it."""
        return str(self._parsed(text).toString())

    def written_again(self, text: str, body: bytes) -> bytes:
        """The bytes that Java writes for the record that it has read; all bytes must belong to it."""
        avro, schema = self._jvm.org.apache.avro, self._parsed(text)
        decoder = avro.io.DecoderFactory.get().binaryDecoder(body, None)
        record = avro.generic.GenericDatumReader(schema).read(None, decoder)
        assert decoder.isEnd()
        output = self._jvm.java.io.ByteArrayOutputStream()
        encoder = avro.io.EncoderFactory.get().binaryEncoder(output, None)
        avro.generic.GenericDatumWriter(schema).write(record, encoder)
        encoder.flush()
        return bytes(output.toByteArray())

    def _parsed(self, text: str) -> Any:
        # a new parser each time: one refuses a second schema of the same name
        return getattr(self._jvm, "org.apache.avro.Schema$Parser")().parse(text)


@contextmanager
def java_avro() -> Iterator[JavaAvro]:
    """A JVM that ends with the block."""
    jars = [str(path) for name in _JARS for path in pyspark_jars().glob(f"{name}.jar")]
    bridge = jars[-1]
    port: Any = launch_gateway(
        classpath=":".join(jars),
        jarpath=bridge,
        java_path=str(java_program()),
        javaopts=["-Xmx128m"],
        die_on_exit=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        yield JavaAvro(gateway)
    finally:
        gateway.shutdown()
