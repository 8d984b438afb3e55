"""TLS to database servers: a client context for each TLS mode of a set document."""

import ssl

# X509_V_ERR_… of OpenSSL, which no Python module names
_SELF_SIGNED = 18
_OTHER_NAME = frozenset({62, 64})  # host name, IP address
_OUTDATED = frozenset({9, 10})  # not yet valid, expired

# Missing, unreadable, not a file, or not a certificate. Other disk errors may be temporary.
_UNUSABLE = (
    FileNotFoundError,
    NotADirectoryError,
    IsADirectoryError,
    PermissionError,
    ssl.SSLError,
)


class UnusableAuthorityError(Exception):
    """The CA file cannot be used. The text says which file and why."""


def unverified() -> ssl.SSLContext:
    """A context that verifies nothing. It skips the system's certificates: loading them takes longer than a login."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def verifying(ca_path: str, *, checks_name: bool) -> ssl.SSLContext:
    """A context that verifies with the CA in this file, else with the system's CAs.

    Raises UnusableAuthorityError, or an OSError that may be temporary.
    """
    try:
        context = ssl.create_default_context(cafile=ca_path or None)
    except _UNUSABLE as error:
        message = f"the CA file {ca_path} can't be used: {error.strerror}"
        raise UnusableAuthorityError(message) from error
    context.check_hostname = checks_name
    return context


def certificate_fix(error: ssl.SSLCertVerificationError) -> str:
    """Which setting of the set document, or of the server, fits a certificate that was refused with ``error``."""
    code = getattr(error, "verify_code", 0)
    if code == _SELF_SIGNED:
        return (
            "No CA signed this certificate, so `tls: verify-ca` can not help. Give the server a certificate that a CA"
            " signed and name that CA as `tls_ca`; or, where the server keeps its own certificate in a file, name a"
            " copy of it as `tls_ca`; or set `tls: require-unverified`, which encrypts without knowing to whom (the"
            " only one that works for the certificate that MariaDB 11.4 and later make at each start)."
        )
    if code in _OTHER_NAME:
        return (
            "Use as `host` of the member a name that its certificate holds, or set `tls: verify-ca`, which checks the"
            " CA and not the name (needed for the certificates that MySQL makes for itself)."
        )
    if code in _OUTDATED:
        return "Renew the server's certificate, and check the clocks of the server and of this machine."
    return (
        "Name the certificate of the CA that signed the server's as `tls_ca` (for a certificate that MySQL made for"
        " itself: ca.pem in its data directory, with `tls: verify-ca`)."
    )
