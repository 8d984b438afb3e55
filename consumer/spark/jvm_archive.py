"""Creates the JVM archive of the Spark driver (`millrace/jvm.py`) if it is missing. Takes about 25 s."""

import sys
from collections.abc import Sequence

from millrace.consumer.spark.session import SparkDriver, jvm_archive


def main() -> None:
    """Start a driver, rehearse and end it. Without the archive, drivers only start more slowly."""
    try:
        jvm_archive().make(_run)
    except Exception as error:  # noqa: BLE001 - the archive only saves time
        print(f"no JVM archive for Spark, drivers start more slowly: {error}", file=sys.stderr)


def _run(options: Sequence[str]) -> None:
    settings = {"spark.driver.extraJavaOptions": " ".join(options)}
    SparkDriver(master="local[1]", settings=settings).rehearse()


if __name__ == "__main__":
    main()
