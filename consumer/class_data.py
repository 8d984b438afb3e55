"""Make the archive of a Spark driver's class data (`millrace/java.py`), where there is none: about 25 s, once."""

import sys
from collections.abc import Sequence

from consumer.spark import SparkDriver, class_data


def main() -> None:
    """A driver starts, does what each one does at its start, and ends. Without the archive drivers only start later."""
    try:
        class_data().make(_run)
    except Exception as error:  # noqa: BLE001 - whatever it is, nothing stands on it
        print(f"no archive of Spark's class data, drivers start slower: {error}", file=sys.stderr)


def _run(options: Sequence[str]) -> None:
    settings = {"spark.driver.extraJavaOptions": " ".join(options)}
    SparkDriver(master="local[1]", settings=settings).rehearse()


if __name__ == "__main__":
    main()
