"""The difference of two documents names fields with their old and new values."""

import pytest

from millrace.schemas.documents import (
    field_changes,
    parse_set,
    parse_task,
    plain_from_yaml,
    plain_set,
    plain_task,
)

SHOP = "set: shop\nmembers: [{host: db1}]\nuser: millrace\npassword: env:SECRET\n"
APPLY = "task: a\nkind: apply\ntopic: shop\nkafka: {bootstrap: 'h:1'}\ntarget: w\n"
CAPTURE = "task: a\nkind: capture\nset: shop\nkafka: {bootstrap: 'h:1'}\nregistry: http://h:1\n"


def _plain(text: str) -> dict[str, object]:
    plain = plain_from_yaml(text)
    return plain_task(parse_task(plain)) if "kind:" in text else plain_set(parse_set(plain))


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        (SHOP, SHOP + "relay: with_tasks\n", []),
        (SHOP, SHOP + "relay: always\n", [("relay.mode", "with_tasks", "always")]),
        (
            SHOP + "relay: {purge: {expires_h: 72}}\n",
            SHOP,
            [("relay.purge.expires_h", 72, 24)],
        ),
        (SHOP, SHOP + "heartbeat: {database: ops}\n", [("heartbeat.database", None, "ops")]),
        (
            SHOP,
            SHOP.replace("db1", "db2"),
            [
                (
                    "members",
                    [{"host": "db1", "port": 3306}],
                    [{"host": "db2", "port": 3306}],
                )
            ],
        ),
        (APPLY, APPLY + "lanes: 8\n", [("lanes", 4, 8)]),
        (APPLY, APPLY.replace("h:1", "h:2"), [("kafka.bootstrap", "h:1", "h:2")]),
        (
            APPLY,
            APPLY + "safe_mode: {until_gtid: 0-1-5}\n",
            [("safe_mode.until_gtid", None, "0-1-5")],
        ),
        (
            CAPTURE + "topic_settings: {retention_ms: -1}\n",
            CAPTURE,
            [("topic_settings.retention_ms", -1, None)],
        ),
        (
            CAPTURE,
            CAPTURE.replace("http://h:1", "http://h:2"),
            [("registry", "http://h:1", "http://h:2")],
        ),
        (
            CAPTURE,
            CAPTURE.replace("http://h:1", "{url: 'https://h:2', token: 'file:/t'}"),
            [("registry", "http://h:1", {"url": "https://h:2", "token": "file:/t"})],
        ),
        (
            CAPTURE,
            APPLY,
            [
                ("kind", "capture", "apply"),
                ("target", None, "w"),
                ("lanes", None, 4),
                ("consistency", None, "causal"),
                ("conflict", None, "stop"),
                ("refused", None, "stop"),
                ("load.parallel", None, 4),
                ("load.chunk_rows", None, 100_000),
                ("load.max_lag_s", None, 30.0),
                ("load.max_threads_running", None, 32),
                ("load.from_primary", None, False),
                ("load.new_tables", None, True),
                ("compare.repair", None, False),
                ("compare.structure", None, "report"),
                ("compare.max_lag_s", None, 30.0),
                ("compare.max_threads_running", None, 32),
                ("set", "shop", None),
                ("registry", "http://h:1", None),
                ("snapshot", "none", None),
                ("snapshot_limits.max_lag_s", 30.0, None),
                ("snapshot_limits.max_threads_running", 32, None),
                ("compression", "lz4", None),
                ("resolved_idle_s", 60.0, None),
            ],
        ),
    ],
)
def test_changed_fields_are_named_with_both_values(
    before: str, after: str, changes: list[tuple[str, object, object]]
) -> None:
    """A default that one document writes out is no change."""
    found = field_changes(_plain(before), _plain(after))
    assert [(each.path, each.before, each.after) for each in found] == changes
