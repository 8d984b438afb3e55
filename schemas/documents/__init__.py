"""Set and task documents: YAML for users, frozen values in code, canonical JSON in ZooKeeper.

text.py       YAML text → plain values          MR-4102
kafka.py      the mapping `kafka` of a task     also as a file of its own (MILLRACE_KAFKA_CONFIG)
registry.py   the field `registry` of a task
parse.py      plain values → documents          MR-4101, MR-4107 (one error lists all problems)
publish.py    the view, topics and format of a publish task
view.py       the list `tables`
model.py      the documents                     with references to secrets, never secrets
canonical.py  documents → canonical JSON
diff.py       the fields in which two documents differ
secret.py     references to secrets, resolved by the process that uses them    MR-4106
"""

from millrace.schemas.documents.brokers import Brokers, ClientCertificate, Mechanism, Sasl
from millrace.schemas.documents.canonical import canonical_json, plain_set, plain_task
from millrace.schemas.documents.diff import FieldChange, field_changes
from millrace.schemas.documents.kafka import parse_brokers, plain_brokers
from millrace.schemas.documents.model import (
    Account,
    ApplyRules,
    ApplyTask,
    CaptureRules,
    CaptureTask,
    CleanupPolicy,
    CompareRules,
    Compression,
    ConflictPolicy,
    Consistency,
    Directives,
    HeartbeatRules,
    LoadRules,
    Member,
    OnChange,
    OutputSettings,
    OutputTopics,
    PartitionBy,
    PartitionRule,
    Placement,
    PublishTask,
    PurgeRules,
    Reader,
    RefusedPolicy,
    RelayMode,
    RelayRules,
    RelayTask,
    SafeMode,
    SetDocument,
    Snapshot,
    SnapshotLimits,
    StructureRule,
    TaskDocument,
    TaskKind,
    TopicAddress,
    TopicCompression,
    TopicOptions,
    UpstreamRules,
    Work,
    address_of,
    names_of,
    set_of,
    stream_of,
)
from millrace.schemas.documents.parse import parse_set, parse_task
from millrace.schemas.documents.readers import NAME_WANTED, is_binlog_file, is_name
from millrace.schemas.documents.registry import Registry, parse_registry, plain_registry
from millrace.schemas.documents.secret import SecretPlace, SecretReference, resolve_secret
from millrace.schemas.documents.start import Start
from millrace.schemas.documents.text import plain_from_yaml, plains_from_yaml, yaml_from_plain
from millrace.schemas.documents.tls import Tls, TlsMode
from millrace.schemas.table.table_filter import TableFilter
