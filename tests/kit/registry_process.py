"""``millrace registry`` as a process on a broker."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from millrace.deploy.servers import KafkaServer
from tests.kit.forked import ending_with_us


def command(kafka: KafkaServer, topic: str, *options: str) -> tuple[str, ...]:
    """``millrace registry`` on a free port."""
    program = (sys.executable, "-m", "millrace", "registry", "--kafka", kafka.bootstrap)
    return (*program, "--port", "0", "--topic", topic, *options)


@contextmanager
def started(
    kafka: KafkaServer, topic: str, *options: str
) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """A registry process that accepts requests: its address and the process."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        ending_with_us(*command(kafka, topic, *options)), stdout=pipe, stderr=pipe, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["registry"], process
        finally:
            process.terminate()
            process.wait(60)
