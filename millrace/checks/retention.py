"""Whether a topic keeps its records for the longest pause of a reader. Apart: both halves judge a topic."""

from millrace.checks.requirement import Requirement, Subject


def judge_retention(subject: Subject, retention_ms: int, pause_s: float) -> Requirement:
    """MR-4165 if records expire before a reader that paused for the longest time has read them."""
    kept_s = retention_ms / 1000
    if 0 <= kept_s < pause_s:
        return subject.warn(
            "MR-4165",
            "records are kept",
            found=f"{kept_s / 3600:.1f} h",
            wanted=f"at least {pause_s / 3600:g} h (--pause-h)",
        )
    return subject.ok("records are kept", "forever" if kept_s < 0 else f"{kept_s / 3600:.1f} h")


def judge_loss(subject: Subject, task: str, left_s: float, pause_s: float) -> Requirement:
    """MR-4165 if retention is too short for a reader that is late. ``left_s``: until it removes what was not read."""
    what, left = f"records that {task} has not read are kept", f"for {left_s / 3600:.1f} h more"
    if left_s >= pause_s:
        return subject.ok(what, left)
    wanted = f"at least {pause_s / 3600:g} h (--pause-h)"
    return subject.warn("MR-4165", what, found=left, wanted=wanted)
