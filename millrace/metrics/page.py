"""The table of metrics as Markdown: ``python -m millrace.metrics.page > docs/metrics.md``."""

from millrace.http import PORTS
from millrace.metrics.table import SECTIONS

_HEAD = """# Metrics and health

Every process of Millrace answers over HTTP:

| path | answer |
|---|---|
| `/metrics` | the metrics below, in Prometheus's text format |
| `/livez` | 200 while the loops of the process run, else 503 and the loop that hangs: restart the process |
| `/readyz` | 200 if the process does its work, else 503 and the reason |

A worker or apply driver is ready when it is registered in ZooKeeper, a scheduler when it leads or waits to lead, a
registry when it has read its topic. A task that fails does not count: see `millrace_state`.

`--http HOST:PORT` or MILLRACE_HTTP gives the address. By default the process takes a free port on loopback, so that
several processes run on one host, and logs it as `http listens`. `none` turns the page off. A port that is in use is an
error (MR-8009). To let Prometheus find the processes, give each a port. We suggest:

{ports}

    scrape_configs:
      - job_name: millrace
        scrape_interval: 15s
        static_configs: [{{targets: ["localhost:9471", "localhost:9472", "localhost:9473", "localhost:9474"]}}]

There is no login and no TLS. The page shows names of tasks and members, and reasons. Listen on loopback, or in a
network that only your monitoring can reach. The log warns of any other address than loopback.

The metrics of a task are the values of `millrace status --json` ([status](status.md)) at the moment of the scrape. They
come from the worker that runs the task, and end there when the task moves. An unknown value has no series. Tables are
not named. Tasks that read the same set share its relay log, so do not add up `millrace_relay_bytes`. A scrape of a
worker with 200 tasks takes 4 ms of its time.

`deploy/prometheus/alerts.yml` has alerts, and [operations](operations.md) has the actions for each.
`deploy/grafana/overview.json` and `deploy/grafana/expert.json` are dashboards.
"""


def markdown() -> str:
    """The whole page: one table per section. Ends with a line break."""
    ports = ["| command | port |", "|---|---|"]
    ports += [f"| `{command}` | {port} |" for command, port in PORTS.items()]
    parts = [_HEAD.format(ports="\n".join(ports))]
    for title, metrics in SECTIONS.items():
        parts.append(f"\n## {title}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n")
        for metric in metrics:
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            parts.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |\n")
    return "".join(parts)


if __name__ == "__main__":
    print(markdown(), end="")
