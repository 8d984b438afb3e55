"""TLS towards database servers: a client's context for each way in which a set document asks for it."""

import ssl

# Not there, not ours to read, no file, no certificate in it. What else a disk says may pass.
_UNUSABLE = (
    FileNotFoundError,
    NotADirectoryError,
    IsADirectoryError,
    PermissionError,
    ssl.SSLError,
)


class UnusableAuthorityError(Exception):
    """A CA's file that can't be used; its text says which and why."""


def unverified() -> ssl.SSLContext:
    """Without the system's certificates, which take longer to load than to log in."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def verifying(ca_path: str, *, checks_name: bool) -> ssl.SSLContext:
    """By the CA in this file, else by the system's; UnusableAuthorityError, or an OSError that may pass."""
    try:
        context = ssl.create_default_context(cafile=ca_path or None)
    except _UNUSABLE as error:
        told = f"the CA file {ca_path} can't be used: {error.strerror}"
        raise UnusableAuthorityError(told) from error
    context.check_hostname = checks_name
    return context
