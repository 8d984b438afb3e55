"""A publish task in a separate process, which feeds all its slots up to a ``seq``. Prints how it ended."""

from dataclasses import replace
from pathlib import Path

from millrace.errors import MillraceError
from tests.kit.forked import Fork, fork
from tests.kit.publish.rig import SlotRig

STEP = 20


def launch(
    rig: SlotRig, *, epoch: int, seq: int, fault: str, log: Path, backoff_ms: int = 1000
) -> Fork:
    """Run it with an armed fault. With a small ``backoff_ms`` every commit counts as slow."""
    numbers = (rig.slots, rig.partitions, rig.era, epoch, seq, backoff_ms)
    arguments = [rig.bootstrap, rig.prefix, *map(str, numbers)]
    return fork(main, arguments, environment={"MILLRACE_FAULT": fault}, log=log)


def main(arguments: list[str]) -> int:
    """BOOTSTRAP PREFIX SLOTS PARTITIONS ERA EPOCH SEQ BACKOFF_MS. Returns 0."""
    bootstrap, prefix, *numbers = arguments
    slots, partitions, era, epoch, seq, backoff_ms = map(int, numbers)
    rig = SlotRig(bootstrap, prefix, slots=slots, partitions=partitions)
    rig.era = era
    rig.limits = replace(rig.limits, retry_backoff_ms=backoff_ms)
    try:
        publish(rig, epoch, seq)
    except MillraceError as error:
        print(f"{type(error).__name__} {error.code}", flush=True)
    else:
        print("done", flush=True)
    return 0


def publish(rig: SlotRig, epoch: int, seq: int) -> None:
    """Start the task, and feed its slots in turn."""
    with rig.running(epoch) as slots:
        for end in range(min(slot.position.seq for slot in slots) + STEP, seq + STEP, STEP):
            for slot in slots:
                rig.feed(slot, min(end, seq), step=STEP)
