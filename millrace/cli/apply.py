"""``millrace apply``: run an apply driver until SIGTERM. Each of its tasks is one Spark query."""

import os
import signal
import sys
import time
from typing import Annotated

import typer

from millrace.cli.exits import ExitCode
from millrace.cli.options import Http, Labels, Tasks, labels_of
from millrace.process.privacy import keep_private

Master = Annotated[str, typer.Option(help="Spark's master: local[N], spark://…, yarn, k8s://….")]
Name = Annotated[
    str, typer.Option(help="The driver's name in `millrace status`; host-pid by default.")
]
Conf = Annotated[
    list[str], typer.Option("--conf", help="A Spark setting, NAME=VALUE; may be repeated.")
]


def apply(
    *,
    master: Master = "local[16]",
    name: Name = "",
    conf: Conf = [],  # noqa: B006 - Typer copies it
    label: Labels = [],  # noqa: B006
    capacity: Tasks = None,
    http: Http = "",
) -> None:
    """Run an apply driver: from Kafka to target sets, on Spark. SIGTERM or the end of its JVM shuts it down cleanly."""
    from millrace.consumer.spark.session import SparkDriver, settings_of
    from millrace.consumer.task.publish_runner import PublishRunner
    from millrace.consumer.task.runner import ApplyRunner
    from millrace.consumer.task.runners import Runners
    from millrace.errors import Retryable
    from millrace.http import open_page
    from millrace.log import get_logger
    from millrace.schemas.documents import TaskKind
    from millrace.zk.lease.membership import WorkerIdentity, process_name
    from millrace.zk.run.worker import run_worker
    from millrace.zk.tree.store import Store

    log = get_logger("apply")
    worker = WorkerIdentity(  # before a JVM is started
        name=process_name(name), kind=TaskKind.APPLY, labels=labels_of(label), capacity=capacity
    )
    keep_private()
    with open_page(http) as page:
        began_s = time.monotonic()
        log.info("starting Spark, which takes about a minute", master=master)
        driver = SparkDriver(master=master, settings=settings_of(conf))
        log.info("Spark has started", seconds=round(time.monotonic() - began_s, 1))

        def make_runner(store: Store) -> Runners:
            log.info("preparing the compiled functions: seconds, or minutes after an installation")
            return Runners(ApplyRunner(driver, store), PublishRunner(driver, store))

        def shut_down(error: Retryable) -> None:
            log.error("the JVM is gone: this process shuts down", error=error)
            os.kill(os.getpid(), signal.SIGTERM)

        driver.jvm.watch(shut_down)
        try:
            status = run_worker(worker, make_runner, page=page)
        finally:
            driver.stop()
    sys.exit(ExitCode.RESTART if driver.jvm.is_lost else status)
