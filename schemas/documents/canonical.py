"""Documents as canonical JSON, as stored in ZooKeeper: equal documents have equal bytes.

The fields are those of the YAML plus ``format``, with sorted keys. Defaults are written out, so that a later change of
a default does not change existing tasks. ``parse_*(loads(encode(d))) == d``.
"""

import json
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from millrace.schemas.documents.kafka import plain_brokers
from millrace.schemas.documents.model import (
    ADDED_LATER,
    ApplyTask,
    CaptureTask,
    Placement,
    PublishTask,
    RefusedPolicy,
    SetDocument,
    Snapshot,
    TaskDocument,
)
from millrace.schemas.documents.parse import FORMAT
from millrace.schemas.documents.publish import plain_records, plain_topics
from millrace.schemas.documents.registry import plain_registry
from millrace.schemas.documents.view import plain_task_view

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
        **_part("relay", document.relay),
        **_part("upstream", document.upstream),
        **_part("heartbeat", document.heartbeat),
        **_placement(document.placement),
    }


def _part(name: str, rules: Any) -> Plain:
    """Nothing if all fields have their defaults: documents written before the field existed stay equal."""
    return {} if rules == type(rules)() else {name: _plain_fields(rules)}


def _plain_fields(rules: Any) -> Plain:
    """The fields of a dataclass, without None and without the defaults of those that were added later."""
    plain: Plain = {}
    for field in fields(rules):
        value, marks = getattr(rules, field.name), getattr(field.type, "__metadata__", ())
        if value is None or (ADDED_LATER in marks and value == field.default):
            continue
        if is_dataclass(value):
            value = _plain_fields(value)
        plain[field.name] = value.value if isinstance(value, Enum) else value
    return plain


def _placement(placement: Placement) -> Plain:
    labels = dict(label.split("=", 1) for label in sorted(placement.labels))
    return {"placement": {"labels": labels}} if labels else {}


def plain_task(document: TaskDocument) -> Plain:
    """A task document as plain values, in the fields of the YAML."""
    if isinstance(document, CaptureTask):
        return _plain_capture(document)
    return _plain_apply(document) if isinstance(document, ApplyTask) else _plain_publish(document)


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
        **_part("topic_settings", task.topic_options),
        **({} if task.snapshot is Snapshot.NONE else {"snapshot": task.snapshot.value}),
        **_part("snapshot_limits", task.snapshot_limits),
        **_plain_fields(task.rules),
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
        **plain_task_view(task.view, with_exclude=True),
        "lanes": task.rules.lanes,
        "consistency": task.rules.consistency.value,
        "conflict": task.rules.conflict.value,
        **_refused(task.rules.refused),
        **_part("safe_mode", task.rules.safe_mode),
        **_part("load", task.rules.load),
        **_part("compare", task.rules.compare),
        **_placement(task.placement),
    }


def _refused(policy: RefusedPolicy) -> Plain:
    """A field of later versions: documents of earlier ones stay as they are."""
    return {} if policy is RefusedPolicy.STOP else {"refused": policy.value}


def _plain_publish(task: PublishTask) -> Plain:
    return {
        "format": FORMAT,
        "task": task.name,
        "kind": task.kind.value,
        "topic": task.source.topic,
        "kafka": plain_brokers(task.source.brokers),
        **({"registry": plain_registry(task.source.registry)} if task.source.registry.url else {}),
        "start": str(task.start),
        **plain_task_view(task.view, with_exclude=False),
        **plain_topics(task.topics),
        **_part("topic_settings", task.topics.settings),
        "records": plain_records(task.format),
        "on_change": task.on_change.value,
        **({"accept_ddl": list(task.accept_ddl)} if task.accept_ddl else {}),
        **_placement(task.placement),
    }
