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
