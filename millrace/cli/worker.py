"""``millrace worker``: runs a capture worker until SIGTERM."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from millrace.private import keep_private

RelayDir = Annotated[
    Path,
    typer.Option(
        "--relay-dir", help="The directory of the relay logs; each set has a subdirectory."
    ),
]
Name = Annotated[
    str, typer.Option(help="The worker's name in `millrace status`; host-pid by default.")
]


def worker(*, relay_dir: RelayDir, name: Name = "") -> None:
    """Run a capture worker: from source sets to Kafka. SIGTERM shuts it down cleanly."""
    from producer.capture import CaptureRunner
    from producer.upstream.upstream import Site
    from producer.upstream.upstreams import Upstreams
    from schemas.documents import TaskKind
    from zk.ensemble import Ensemble
    from zk.lease.membership import process_name
    from zk.run.worker import run_worker

    worker_name = process_name(name)
    keep_private()
    ensemble = Ensemble.from_environment()
    sys.exit(
        run_worker(
            TaskKind.CAPTURE,
            lambda store: CaptureRunner(
                store,
                Upstreams(
                    Site(
                        root=relay_dir,
                        installation=store.installation,
                        directives=store.directives,
                    )
                ),
                worker_name,
            ),
            name=worker_name,
            relays=lambda: relay_sets(relay_dir),
            ensemble=ensemble,
        )
    )


def relay_sets(relay_dir: Path) -> list[str]:
    """The sets that have a subdirectory; none when the directory does not exist yet."""
    try:
        return [entry.name for entry in relay_dir.iterdir() if entry.is_dir()]
    except OSError:
        return []
