"""The groups of lines of each benchmark; ``docs/bench.md`` describes them. Each group can be run alone.

Only JSON lines go to standard output. Progress goes to standard error.
"""

from collections.abc import Callable, Sequence
from functools import partial

from millrace.deploy.bench import comparison, copy, start, whole_stack
from millrace.deploy.bench.apply import backlogs, ddl, memory, views, workloads
from millrace.deploy.bench.apply import latency as apply_latency
from millrace.deploy.bench.capture import bulk, relay, snapshot, upstream
from millrace.deploy.bench.capture import latency as capture_latency
from millrace.deploy.bench.figure import Group
from millrace.deploy.bench.publish import backlog, beside, kernels
from millrace.deploy.bench.publish import latency as publish_latency

ROWS, TRANSACTIONS = "changes/s", "transactions/s"


def _backlog(name: str, workload: Callable[[], workloads.Workload], unit: str) -> Group:
    return Group((name,), partial(backlogs.backlog_figure, name, workload, unit))


WHOLE_STACK: Sequence[Group] = (Group(whole_stack.LINES, whole_stack.stack_figures),)
APPLY: Sequence[Group] = (
    Group((backlogs.BULK, backlogs.OVERHEAD), backlogs.bulk_figures),
    Group((backlogs.CLUSTER,), backlogs.cluster_figures),
    Group((views.VIEW,), views.view_figures),
    _backlog("apply.merge", workloads.merge, ROWS),
    Group(ddl.LINES, ddl.ddl_figures),
    Group(backlogs.SMALL, backlogs.small_figures),
    _backlog("apply.hot", workloads.hot, TRANSACTIONS),
    Group(apply_latency.LINES, apply_latency.latency_figures),
    Group(memory.LINES, memory.rss_figures, is_long=True),
    _backlog("apply.text", workloads.text, ROWS),
)
CAPTURE: Sequence[Group] = (
    Group(relay.LINES, relay.relay_figures),
    Group(capture_latency.LINES, capture_latency.latency_figures),
    Group((bulk.BULK,), bulk.bulk_figures),
    Group((bulk.SMALL,), bulk.small_figures),
    Group(snapshot.LINES, snapshot.snapshot_figures),
    Group(upstream.LINES, upstream.upstream_figures),
)
PUBLISH: Sequence[Group] = (
    Group(backlog.RATE_LINES, backlog.rate_figures),
    Group(publish_latency.LINES, publish_latency.latency_figures),
    Group(backlog.CPU_LINES, backlog.cpu_figures),
    Group((beside.LINE,), beside.beside_figures),
    Group(kernels.LINES, kernels.kernel_figures),
    Group(backlog.FORMAT_LINES, backlog.format_figures),
)
LOAD: Sequence[Group] = (Group(copy.LINES, copy.copy_figures),)
COMPARE: Sequence[Group] = (Group(comparison.LINES, comparison.compare_figures),)
START: Sequence[Group] = (
    Group(start.ROW_LINES, start.first_row_figures),
    Group((start.WHEEL,), start.wheel_figures),
    Group((start.DEMO,), start.demo_figures),
)
