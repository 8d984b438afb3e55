"""``apply.rss.driver`` and ``.worker``: peak resident memory while one source transaction of 2 GB is applied.

The transaction inserts ``ROWS`` rows of 200 bytes, the first block as text and the others as copies of it. ``.driver``
is the JVM and the driver's Python together, ``.driver.jvm`` and ``.driver.python`` are each alone, ``.worker`` is the
largest Python worker. Peaks are the kernel's, since each process began.
"""

from collections.abc import Iterator
from contextlib import closing

from millrace.deploy.bench.apply.processes import Part, use_watch
from millrace.deploy.bench.figure import Figure, Size, say
from millrace.deploy.bench.scene import Scene, open_scene

LINES = ("apply.rss.driver", "apply.rss.driver.jvm", "apply.rss.driver.python", "apply.rss.worker")
DATABASE = "bench_rss"
ROWS = 10_000_000
BLOCK = 10_000
TEXT = "0123456789abcdef" * 11


def rss_figures(size: Size) -> Iterator[Figure]:
    with open_scene(size.flavour) as scene:
        scene.source.execute(f"CREATE DATABASE {DATABASE}")
        scene.source.execute(
            f"CREATE TABLE {DATABASE}.wide (id BIGINT NOT NULL PRIMARY KEY, n INT NOT NULL,"
            " note VARCHAR(200) NOT NULL) DEFAULT CHARSET=utf8mb4"
        )
        scene.wait_applied()
        with use_watch((scene.service(),)) as use:
            _write(scene, max(round(ROWS * size.scale / BLOCK), 2))
            scene.wait_applied()
    jvm, python = use.peak_mb(Part.JVM), use.peak_mb(Part.PYTHON)
    yield Figure("apply.rss.driver", jvm + python, "MB")
    yield Figure("apply.rss.driver.jvm", jvm, "MB")
    yield Figure("apply.rss.driver.python", python, "MB")
    yield Figure("apply.rss.worker", use.peak_mb(Part.WORKER), "MB")


def _write(scene: Scene, blocks: int) -> None:
    with closing(scene.connect()) as connection:
        cursor = connection.cursor()
        cursor.execute(f"USE {DATABASE}")
        rows = ",".join(f"({key},0,'{TEXT}')" for key in range(BLOCK))
        cursor.execute(f"INSERT INTO wide VALUES {rows}")
        for number in range(1, blocks):
            cursor.execute(
                f"INSERT INTO wide SELECT id + {number * BLOCK}, {number}, note FROM wide"
                f" WHERE id < {BLOCK}"
            )
        connection.commit()
    say(f"  one source transaction of {blocks * BLOCK:,} rows is committed")
