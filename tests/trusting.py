"""``millrace``, whose publisher no slow machine makes anew: for a process as ``trusting`` is for a test's own.

python -m tests.trusting worker --relay-dir DIR
"""

from millrace.cli import main
from producer.publisher.config import PublisherLimits
from tests.fix_publisher import TRUSTED_S

if __name__ == "__main__":
    setattr(PublisherLimits, "suspicious_s", TRUSTED_S)  # noqa: B010 - a property is set by no assignment
    main()
