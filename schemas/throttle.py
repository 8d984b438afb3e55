"""When reading many rows pauses: the member that is read falls behind, or a server is busy. Pure."""

from dataclasses import dataclass

from millrace.schemas.documents import LoadRules, SnapshotLimits

MEASURE_S = 1.0  # interval of the measurements
SILENT = "the member that is read does not replicate"


@dataclass(frozen=True, slots=True)
class Measured:
    """``lag_s``: of the member that is read; None: it does not replicate now."""

    lag_s: float | None
    threads_running: int


def why_paused(measured: Measured, limits: LoadRules | SnapshotLimits, *, busy: str) -> str:
    """The reason to pause; "" if there is none. ``busy``: the server with these threads."""
    if measured.lag_s is None:
        return SILENT
    if measured.lag_s > limits.max_lag_s:
        return f"the member that is read has a lag of {measured.lag_s:g} s, max_lag_s is {limits.max_lag_s:g}"
    if measured.threads_running > limits.max_threads_running:
        return (
            f"Threads_running of the {busy} is {measured.threads_running},"
            f" max_threads_running is {limits.max_threads_running}"
        )
    return ""
