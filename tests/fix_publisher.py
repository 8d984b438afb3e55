"""Publishers that no slow machine makes anew."""

import pytest

from producer.publisher.config import PublisherLimits

TRUSTED_S = 60.0  # less than what a test that means a slow commit says it took


@pytest.fixture
def trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 3 does not make an instance anew where a slow machine makes a slow commit."""
    monkeypatch.setattr(PublisherLimits, "suspicious_s", TRUSTED_S)
