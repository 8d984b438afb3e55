"""Whether a host is this machine alone. Services listen for others only with TLS and a login, or on request."""

import ipaddress


def is_loopback(host: str) -> bool:
    """True for ``localhost`` and the addresses of the loopback range. A name is not looked up."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
