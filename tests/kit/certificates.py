"""A certificate authority for tests: server and client certificates, also of the wrong host and expired ones."""

import subprocess
from pathlib import Path

from millrace.deploy.servers.tls import TlsFiles

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """Its certificate is ``folder``/ca.pem."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._openssl("req", "-x509", *_KEY, "-keyout", "ca-key.pem", "-out", "ca.pem")

    @property
    def path(self) -> Path:
        """Its own certificate."""
        return self._folder / "ca.pem"

    def issue(
        self,
        name: str,
        *,
        subject: str = "/CN=localhost",
        host: str = "localhost",
        days: int = 3650,
    ) -> TlsFiles:
        """A certificate with its key. With negative ``days`` it has expired."""
        key, request, made = f"{name}-key.pem", f"{name}.csr", f"{name}.pem"
        self._openssl("req", *_KEY, "-keyout", key, "-out", request, subject=subject)
        (self._folder / "names").write_text(f"subjectAltName=DNS:{host}\n")
        signer = ("-CA", "ca.pem", "-CAkey", "ca-key.pem", "-CAcreateserial", "-extfile", "names")
        self._run("x509", "-req", "-in", request, "-out", made, *signer, "-days", str(days))
        return TlsFiles(self.path, self._folder / made, self._folder / key)

    def _openssl(self, *command: str, subject: str = "/CN=test authority") -> None:
        self._run(*command, "-subj", subject)

    def _run(self, *command: str) -> None:
        subprocess.run(("openssl", *command), cwd=self._folder, check=True, capture_output=True)
