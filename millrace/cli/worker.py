"""``millrace worker``: run a capture worker until SIGTERM."""

import sys
from pathlib import Path
from typing import Annotated

import typer

RelayDir = Annotated[
    Path, typer.Option("--relay-dir", help="Where relay logs lie, a directory for each set.")
]
Name = Annotated[str, typer.Option(help="Its name in `millrace status`; host-pid by default.")]


def worker(*, relay_dir: RelayDir, name: Name = "") -> None:
    """Run a capture worker: source sets to Kafka. SIGTERM ends it in order."""
    from producer.capture import CaptureRunner
    from producer.set_stream import SetStreams
    from schemas.documents import TaskKind
    from zk.ensemble import Ensemble
    from zk.membership import process_name
    from zk.worker import run_worker

    called = process_name(name)
    ensemble = Ensemble.from_environment()
    streams = SetStreams(relay_dir)
    sys.exit(
        run_worker(
            TaskKind.CAPTURE,
            lambda store: CaptureRunner(store, streams, called),
            name=called,
            ensemble=ensemble,
        )
    )
