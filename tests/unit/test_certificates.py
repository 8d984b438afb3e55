"""The fix for a refused certificate names the setting that fits it."""

import ssl
import subprocess
from pathlib import Path

import pytest

from millrace.tls import certificate_fix

KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
CA = ("req", "-x509", *KEY, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=an authority")
REQUEST = ("req", *KEY, "-keyout", "key.pem", "-out", "server.csr", "-subj", "/CN=db")
SIGN = ("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key")
SELF_SIGNED = ("req", "-x509", *KEY, "-keyout", "key.pem", "-out", "server.pem", "-subj", "/CN=db")


def _refused(folder: Path, *, ca_path: str, checks_name: bool) -> ssl.SSLCertVerificationError:
    """Return the client's error for the certificate of ``folder`` when it connects as ``other``."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.pem", folder / "key.pem")
    client = ssl.create_default_context(cafile=ca_path or None)
    client.check_hostname = checks_name
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname="other")
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(10):
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError as error:
                return error
    pytest.fail("the certificate was accepted")


def _openssl(folder: Path, *command: str) -> None:
    subprocess.run(("openssl", *command), cwd=folder, check=True, capture_output=True)


def test_self_signed_certificate_fix_never_suggests_verify_ca(tmp_path: Path) -> None:
    """The certificate has no signer, so a check of the signer cannot succeed."""
    _openssl(tmp_path, *SELF_SIGNED)
    fix = certificate_fix(_refused(tmp_path, ca_path="", checks_name=False))
    assert "`tls: verify-ca` can not help" in fix
    assert "`tls: require-unverified`" in fix


def test_unknown_authority_and_wrong_hostname_have_separate_fixes(tmp_path: Path) -> None:
    """`tls_ca` names the authority; then only the hostname is wrong, which verify-ca does not check."""
    for command in (CA, REQUEST, (*SIGN, "-CAcreateserial", "-out", "server.pem")):
        _openssl(tmp_path, *command)
    unknown = certificate_fix(_refused(tmp_path, ca_path="", checks_name=False))
    assert "as `tls_ca`" in unknown
    assert "require-unverified" not in unknown
    named = str(tmp_path / "ca.pem")
    assert "set `tls: verify-ca`" in certificate_fix(
        _refused(tmp_path, ca_path=named, checks_name=True)
    )
