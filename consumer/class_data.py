"""Make the archive of a Spark driver's class data (`millrace/java.py`), where there is none: about 25 s, once a JVM."""

from consumer.spark import SparkDriver, class_data


def main() -> None:
    """Start a driver, let it do what each one does at its start, and end it."""
    wanted = class_data()
    if wanted.path.exists():
        return
    with wanted.making() as options:
        settings = {"spark.driver.extraJavaOptions": " ".join(options)}
        SparkDriver(master="local[1]", settings=settings).rehearse()


if __name__ == "__main__":
    main()
