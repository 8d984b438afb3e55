"""TLS to servers: a client context for each TLS mode, and the reason why a certificate was refused."""

import ssl
from enum import Enum

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
    """The CA file cannot be used. The text names the file and the reason."""


class CertificateProblem(Enum):
    """Why a certificate was refused."""

    SELF_SIGNED = "no CA signed it"
    OTHER_NAME = "it is for another host"
    OUTDATED = "it has expired or is not valid yet"
    UNTRUSTED = "no trusted CA signed it"


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


def certificate_problem(error: ssl.SSLCertVerificationError) -> CertificateProblem:
    """Why the certificate was refused."""
    code = getattr(error, "verify_code", 0)
    if code == _SELF_SIGNED:
        return CertificateProblem.SELF_SIGNED
    if code in _OTHER_NAME:
        return CertificateProblem.OTHER_NAME
    if code in _OUTDATED:
        return CertificateProblem.OUTDATED
    return CertificateProblem.UNTRUSTED


def certificate_fix(error: ssl.SSLCertVerificationError) -> str:
    """The setting of the set document, or of the server, that fixes the refusal of a database server's certificate."""
    problem = certificate_problem(error)
    if problem is CertificateProblem.SELF_SIGNED:
        return (
            "No CA signed this certificate, so `tls: verify-ca` can not help. Give the server a certificate that a CA"
            " signed and name that CA as `tls_ca`. Or, if the server keeps its own certificate in a file, name a copy"
            " of that file as `tls_ca`. Or set `tls: require-unverified`, which encrypts but does not verify the"
            " server. Only this mode works with the certificate that MariaDB 11.4 and later generate at each start."
        )
    if problem is CertificateProblem.OTHER_NAME:
        return (
            "Set `host` of the member to a name in its certificate, or set `tls: verify-ca`, which checks the CA but"
            " not the name. The certificates that MySQL generates itself need `verify-ca`."
        )
    if problem is CertificateProblem.OUTDATED:
        return "Renew the server's certificate, and check the clocks of the server and of this machine."
    return (
        "Name the CA that signed the server's certificate as `tls_ca`. For a certificate that MySQL generated itself,"
        " this is ca.pem in its data directory, with `tls: verify-ca`."
    )
