"""Reports of tasks with every value set."""

from schemas.stages.captured import Captured, MemberView, SourceView, SwitchView
from schemas.stages.published import Published
from schemas.stages.rates import Rates
from schemas.stages.relayed import BinlogEnd, PurgeAnswer, Relayed
from schemas.stages.snapshot import SnapshotStage
from schemas.status import TaskReport, TaskState

FULL_CAPTURE = TaskReport(
    TaskState.RUNNING,
    why="waits for changes",
    gtid_set="0-1-912338",
    seq=912_338,
    topic="shop",
    topic_end=1_000_000,
    epoch=5,
    worker="w1",
    warnings=("the topic has one replica",),
    captured=Captured(
        source=SourceView(
            host="db2",
            port=3306,
            role="replica",
            lag_s=0.2,
            missing=0,
            still_s=0.5,
            since="2026-11-24T05:00:00.000+00:00",
            why="lowest lag at the start",
        ),
        switches=(
            SwitchView(
                at="2026-11-24T05:00:00.000+00:00",
                source="db1:3306",
                target="db2:3306",
                why="drained",
                refused=("MR-1036 late",),
                gap_s=0.1,
                switch_s=0.05,
            ),
        ),
        members=(
            MemberView(
                host="db2",
                port=3306,
                role="replica",
                reachable=True,
                lag_s=0.2,
                missing=0,
                admissible=True,
                why="chosen",
                chosen=True,
            ),
        ),
    ),
    relayed=Relayed(
        stage="receives",
        why="from db2:3306",
        source=BinlogEnd(file="mysql-bin.000007", pos=500, gtid_set="0-1-912338"),
        subdir="0-2.000001",
        relay=BinlogEnd(file="mysql-bin.000007", pos=500, gtid_set="0-1-912338"),
        caught_up=True,
        behind_bytes=0,
        received_bytes=123_456,
        connects=1,
        stored_bytes=2_254_857_830,
        disk_left_bytes=100 << 30,
        oldest_file="0-2.000001/mysql-bin.000001",
        needed={"shop-capture": "0-2.000001/mysql-bin.000007"},
        end_at_s=1_764_000_000.0,
        kept_s=86_400.0,
        time_to_loss_s=86_400.0,
        loss="what the relay has not received when the source purges it",
        purge=PurgeAnswer(
            id="1f", deleted=("0-2.000001/mysql-bin.000001",), evicted={"t": "0-1-7"}
        ),
    ),
    published=Published(
        lag_s=0.03,
        waits_s=0.1,
        commit_ms=1_764_000_000_000,
        rows=4000,
        rates=Rates(120.0, 80.0),
        at="0-2.000001/mysql-bin.000007:500",
        commit_s=0.004,
        renewed=1,
        slow_path="",
    ),
    snapshot=SnapshotStage(
        id="initial",
        asked=("shop.*",),
        table="shop.orders",
        tables=12,
        done=3,
        chunks=7,
        rows=61_000,
        where="id > 5",
        why="reads",
        left_out=("shop.log: it has no primary key",),
        rates=Rates(5000.0, 4500.5),
        eta_s=75.0,
    ),
)
