"""``millrace`` whose publisher keeps its producer instance after slow commits, as the fixture ``trusting`` does.

It writes no resolved records while the topic is idle: each of its commits holds rows.

python -m tests.kit.publisher.trusting worker --relay-dir DIR
"""

from millrace.cli import main
from millrace.producer.publish.config import PublisherLimits
from tests.fixtures.publisher import TRUSTED_S

QUIET_S = 3600.0

if __name__ == "__main__":
    setattr(PublisherLimits, "suspicious_s", TRUSTED_S)  # noqa: B010 - a property is set by no assignment
    defaults = PublisherLimits.__init__.__kwdefaults__
    assert defaults is not None
    defaults["resolved_interval_s"] = QUIET_S
    main()
