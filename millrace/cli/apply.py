"""``millrace apply``: run an apply driver until SIGTERM: tasks from ZooKeeper, one Spark query each."""

import os
import signal
import sys
from typing import Annotated

import typer

Master = Annotated[str, typer.Option(help="The Spark master: local[N], spark://…, yarn, k8s://….")]
Name = Annotated[str, typer.Option(help="Its name in `millrace status`; host-pid by default.")]
Conf = Annotated[
    list[str], typer.Option("--conf", help="A Spark setting, NAME=VALUE; may be repeated.")
]

EXIT_NO_JVM = 75  # EX_TEMPFAIL: started again, it goes on


def apply(*, master: Master = "local[2]", name: Name = "", conf: Conf = []) -> None:  # noqa: B006 - Typer copies it
    """Run an apply driver: Kafka to target sets, on Spark. SIGTERM ends it in order, and so does the end of its JVM."""
    from consumer.apply import ApplyRunner
    from consumer.spark import SparkDriver
    from millrace.errors import Retryable
    from millrace.log import get_logger
    from schemas.documents import TaskKind
    from zk.membership import process_name
    from zk.worker import run_worker

    called = process_name(name)  # before a JVM is started
    settings = dict(setting.partition("=")[::2] for setting in conf)
    driver = SparkDriver(master=master, settings=settings)

    def end(error: Retryable) -> None:
        get_logger("apply").error("this process ends", error=error)
        os.kill(os.getpid(), signal.SIGTERM)

    driver.jvm.watch(end)
    try:
        status = run_worker(TaskKind.APPLY, lambda store: ApplyRunner(driver, store), name=called)
    finally:
        driver.stop()
    sys.exit(EXIT_NO_JVM if driver.jvm.is_lost else status)
