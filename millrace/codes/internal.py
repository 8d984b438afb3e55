"""9xxx: internal."""

from millrace.codes.code import Branch, Code

CODES: tuple[Code, ...] = (
    Code(
        "MR-9001",
        "an unexpected error",
        "Something happened that no part of Millrace accounts for: a defect.",
        "Keep the log and report it; the task resumes from its last durable progress.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-9002",
        "an injected fault",
        "MILLRACE_FAULT asked for an error at a named fault point (tests only).",
        "Unset MILLRACE_FAULT.",
        Branch.RETRIES,
    ),
)
