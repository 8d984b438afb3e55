"""Documents as canonical JSON, as stored in ZooKeeper: equal documents have equal bytes.

The fields are those of the YAML plus ``format``, with sorted keys. Defaults are written out, so that a later change of
a default does not change existing tasks. ``parse_*(loads(encode(d))) == d``.
"""

import json
from dataclasses import asdict

from schemas.documents.kafka import plain_brokers
from schemas.documents.model import (
    ApplyTask,
    CaptureTask,
    CompareRules,
    HeartbeatRules,
    LoadRules,
    Placement,
    RelayRules,
    SafeMode,
    SetDocument,
    Snapshot,
    SnapshotLimits,
    TaskDocument,
    TopicOptions,
    UpstreamRules,
)
from schemas.documents.parse import FORMAT
from schemas.documents.registry import plain_registry

Plain = dict[str, object]


def plain_set(document: SetDocument) -> Plain:
    """A set document as plain values, in the fields of the YAML."""
    return {
        "format": FORMAT,
        "set": document.name,
        "members": [{"host": m.host, "port": m.port} for m in document.members],
        "user": document.account.user,
        "password": str(document.account.password),
        "tls": document.tls.mode.value,
        **({"tls_ca": document.tls.ca_path} if document.tls.ca_path else {}),
        **_plain_relay(document.relay),
        **_plain_upstream(document.upstream),
        **_plain_heartbeat(document.heartbeat),
        **_plain_placement(document.placement),
    }


def _plain_relay(relay: RelayRules) -> Plain:
    """Nothing if all fields have their defaults: documents written before the field existed stay equal."""
    if relay == RelayRules():
        return {}
    return {
        "relay": {
            "mode": relay.mode.value,
            **({} if relay.start == "first" else {"start": relay.start}),
            "purge": asdict(relay.purge),
            "compress": relay.compress.value,
        }
    }


def _plain_upstream(rules: UpstreamRules) -> Plain:
    """Like ``_plain_relay``."""
    return {} if rules == UpstreamRules() else {"upstream": asdict(rules)}


def _plain_heartbeat(rules: HeartbeatRules) -> Plain:
    return {"heartbeat": asdict(rules)} if rules.database else {}


def _plain_placement(placement: Placement) -> Plain:
    """Like ``_plain_relay``."""
    if not placement.labels:
        return {}
    return {
        "placement": {"labels": dict(label.split("=", 1) for label in sorted(placement.labels))}
    }


def plain_task(document: TaskDocument) -> Plain:
    """A task document as plain values, in the fields of the YAML."""
    return _plain_capture(document) if isinstance(document, CaptureTask) else _plain_apply(document)


def canonical_json(plain: Plain) -> str:
    """Sorted keys, no white space, unescaped UTF-8."""
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _plain_capture(task: CaptureTask) -> Plain:
    return {
        "format": FORMAT,
        "task": task.name,
        "kind": task.kind.value,
        "set": task.set_name,
        "topic": task.output.topic,
        "kafka": plain_brokers(task.output.brokers),
        "registry": plain_registry(task.output.registry),
        "start": str(task.start),
        "include": list(task.tables.include),
        "exclude": list(task.tables.exclude),
        **_plain_options(task.topic_options),
        **({} if task.snapshot is Snapshot.NONE else {"snapshot": task.snapshot.value}),
        **_plain_limits(task.snapshot_limits),
    }


def _plain_limits(limits: SnapshotLimits) -> Plain:
    """Like ``_plain_relay``."""
    return {} if limits == SnapshotLimits() else {"snapshot_limits": asdict(limits)}


def _plain_options(options: TopicOptions) -> Plain:
    """Only the given options. The broker decides the others, also later."""
    named: Plain = {name: value for name, value in asdict(options).items() if value is not None}
    return {"topic_settings": named} if named else {}


def _plain_safe_mode(safe_mode: SafeMode) -> Plain:
    return {"safe_mode": asdict(safe_mode)} if safe_mode.until_gtid else {}


def _plain_load(rules: LoadRules) -> Plain:
    """Like ``_plain_relay``."""
    return {} if rules == LoadRules() else {"load": asdict(rules)}


def _plain_compare(rules: CompareRules) -> Plain:
    """Like ``_plain_relay``. Without ``structure`` if it is the default, which earlier versions do not know."""
    if rules == CompareRules():
        return {}
    structure = rules.structure
    plain: Plain = {name: value for name, value in asdict(rules).items() if name != "structure"}
    return {
        "compare": plain
        if structure is CompareRules().structure
        else {**plain, "structure": structure.value}
    }


def _plain_apply(task: ApplyTask) -> Plain:
    return {
        "format": FORMAT,
        "task": task.name,
        "kind": task.kind.value,
        "topic": task.source.topic,
        "kafka": plain_brokers(task.source.brokers),
        **({"registry": plain_registry(task.source.registry)} if task.source.registry.url else {}),
        "target": task.target,
        "start": str(task.start),
        "include": list(task.tables.include),
        "exclude": list(task.tables.exclude),
        "lanes": task.rules.lanes,
        "consistency": task.rules.consistency.value,
        "conflict": task.rules.conflict.value,
        **_plain_safe_mode(task.rules.safe_mode),
        **_plain_load(task.rules.load),
        **_plain_compare(task.rules.compare),
        **_plain_placement(task.placement),
    }
