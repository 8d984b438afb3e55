"""The keys of masks, read from their secrets in the process that computes the masks.

A mask with a ``fingerprint`` is computed only with the secret that had it. So a secret that was changed in its file
changes no value that a subscriber joins with older ones. Not here: secrets in errors.
"""

import numpy as np
import numpy.typing as npt

from millrace.consumer.kernel.sha256 import padded_states
from millrace.errors import Fatal
from millrace.schemas.documents.secret import SecretReference, resolve_secret
from millrace.schemas.view.view import Mask, View, secret_fingerprint


class MaskKeys:
    """Reads each secret once. ``is_read``: False for a look at a view that masks no value."""

    def __init__(self, *, is_read: bool = True) -> None:
        self._secrets: dict[str, str] = {}
        self._is_read = is_read

    def states(self, mask: Mask) -> npt.NDArray[np.uint32]:
        """The key of an HMAC for ``kernel.sha256``; errors as ``key``."""
        return padded_states(self.key(mask))

    def key(self, mask: Mask) -> bytes:
        """The key of an HMAC. Fatal MR-5203; errors as ``resolve_secret``."""
        if not self._is_read:
            return b""
        secret = self._secret(mask.secret)
        if mask.fingerprint and secret_fingerprint(secret) != mask.fingerprint:
            raise Fatal("MR-5203", f"the secret {mask.secret} is not the one of the view")
        return secret.encode()

    def fingerprints(self, view: View) -> dict[str, str]:
        """The fingerprint of each secret of a view, by its reference; errors as ``resolve_secret``."""
        return {
            reference: secret_fingerprint(self._secret(reference)) for reference in view.secrets
        }

    def _secret(self, text: str) -> str:
        if text not in self._secrets:
            reference = SecretReference.parse(text)
            assert reference is not None, "documents have references only"
            self._secrets[text] = resolve_secret(reference)
        return self._secrets[text]
