"""9xxx: internal. Apart: each section is a file."""

from millrace.codes.code import Branch, Code

CODES: tuple[Code, ...] = (
    Code(
        "MR-9001",
        "an unexpected error occurred",
        "This is a defect in Millrace: no part of it expects this error.",
        "Keep the log and report the error. The task resumes from its last durable progress.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-9002",
        "a test injected a fault",
        "MILLRACE_FAULT asked for an error at a named fault point (tests only).",
        "Unset MILLRACE_FAULT.",
        Branch.RETRIES,
    ),
)
