"""Reads the HTTP page of a process as Prometheus does, with the parser of its own client."""

import urllib.error
import urllib.request
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]


def fetched(address: object, path: str) -> tuple[int, str]:
    """Return status and body of `http://ADDRESS/PATH`."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class Scrape:
    """One scrape."""

    def __init__(self, address: object) -> None:
        status, text = fetched(address, "/metrics")
        assert status == 200, text
        self.samples: Mapping[tuple[str, Labels], float] = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of a series; None if there is none."""
        return self.samples.get((name, frozenset(labels.items())))
