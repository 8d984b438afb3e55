"""TLS to servers: a client context for each TLS mode, the reason why a certificate was refused, and logins that no
impostor can read.

A server names the authentication plugin, so an impostor can ask for any. The client answers, by what TLS proves:

    plugin                                              without TLS   not verified   verified
    mysql_native_password, client_ed25519               answered      answered       answered    a proof
    caching_sha2_password                               fast only     answered       answered    fast: a proof
    sha256_password                                     refused       answered       answered
    mysql_clear_password, dialog, mysql_old_password    refused       refused        answered

Without TLS no public key of a server is asked for or used: an impostor would send its own. "Not verified" is
``require-unverified``, in which the full form of caching_sha2_password sends the password inside TLS, as MySQL's
client does.
"""

import ipaddress
import ssl
from enum import Enum
from typing import Any, NoReturn

from millrace.process.privacy import hidden_from_services, reader

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


class UnsafeLoginError(RuntimeError):
    """The server asks for the password in a form that an impostor could read. Nothing was sent."""


class RefusedPlugin:
    """Stands for an authentication plugin that is refused. PyMySQL makes one when a server asks for it."""

    def __init__(self, _connection: object) -> None:
        pass

    def authenticate(self, _packet: object) -> NoReturn:
        """Refuse to log in."""
        raise UnsafeLoginError("the server asks for a password that an impostor could read")


def login_fix(error: Exception) -> str:
    """The fix for a login that PyMySQL can't make without another package; "" for its refusals."""
    if "package is required" not in str(error):
        return ""
    return (
        "Install the package for the account's authentication method beside Millrace: `pip install pynacl` for ed25519."
        " Or give the account another method: caching_sha2_password on MySQL, mysql_native_password on MariaDB."
    )


NO_KEY = b"no public key"  # PyMySQL asks for none if it has one, and can not use this one
_PROVES_NOTHING = ("mysql_clear_password", "dialog", "mysql_old_password")


def login_guards(*, is_encrypted: bool, is_verified: bool) -> dict[str, Any]:
    """Arguments of PyMySQL's ``connect``; see the module. With ``NO_KEY``, it raises a RuntimeError or ValueError."""
    refused = (
        *(() if is_verified else _PROVES_NOTHING),
        *(() if is_encrypted else ("sha256_password",)),
    )
    return {
        "auth_plugin_map": dict.fromkeys(refused, RefusedPlugin),
        "server_public_key": None if is_encrypted else NO_KEY,
        "local_infile": False,  # a server can ask for any file of the client
    }


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
        hidden = hidden_from_services(ca_path)
        why = f"{error.strerror}, for {reader()}" + (f".{hidden}" if hidden else "")
        message = f"the CA file {ca_path} can't be used: {why}"
        raise UnusableAuthorityError(message) from error
    context.check_hostname = checks_name
    return context


def certificate_problem(error: ssl.SSLCertVerificationError) -> CertificateProblem:
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


def is_loopback(host: str) -> bool:
    """True for ``localhost`` and the addresses of the loopback range. A name is not looked up."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
