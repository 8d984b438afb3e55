"""Documents are parsed or refused with a clear reason."""

import errno
import os
import pwd
from pathlib import Path

import pytest

from millrace.errors import Fatal, Retryable
from millrace.schemas.documents import (
    ApplyTask,
    CaptureRules,
    CaptureTask,
    Compression,
    ConflictPolicy,
    HeartbeatRules,
    Member,
    Placement,
    PurgeRules,
    Registry,
    RelayMode,
    RelayRules,
    SafeMode,
    SecretReference,
    SetDocument,
    TableFilter,
    TlsMode,
    TopicCompression,
    TopicOptions,
    canonical_json,
    parse_set,
    parse_task,
    plain_from_yaml,
    plain_set,
    plain_task,
    resolve_secret,
    stream_of,
)
from tests.kit.faults.starved import no_descriptor_left

SHOP = """
set: shop
members:
  - {host: 127.0.0.1, port: 3306}
  - host: db2.example.org
user: millrace
password: env:MILLRACE_SHOP_PASSWORD
tls: disabled
"""
CAPTURE = """
task: shop-capture
kind: capture
set: shop
kafka: {bootstrap: "127.0.0.1:9092"}
registry: http://127.0.0.1:8081/
start: 0-1-5
exclude: ["shop.tmp*"]
"""
APPLY = """
task: shop-to-warehouse
kind: apply
topic: shop
kafka: {bootstrap: "127.0.0.1:9092"}
target: warehouse
start: first
conflict: skip
"""


def _set(text: str) -> SetDocument:
    return parse_set(plain_from_yaml(text))


def _problems(text: str) -> str:
    plain = plain_from_yaml(text)
    with pytest.raises(Fatal) as caught:
        parse_task(plain) if "kind:" in text else parse_set(plain)
    assert caught.value.code == "MR-4101"
    assert caught.value.fix
    return caught.value.message


def test_set_document_is_read_with_defaults() -> None:
    """Port and TLS mode have defaults; the password stays a reference."""
    document = _set(SHOP)
    assert document.name == "shop"
    assert document.members == (Member("127.0.0.1", 3306), Member("db2.example.org", 3306))
    assert str(document.account.password) == "env:MILLRACE_SHOP_PASSWORD"
    assert document.tls.mode is TlsMode.DISABLED
    assert _set(SHOP.replace("tls: disabled", "")).tls.mode is TlsMode.VERIFY_IDENTITY


def test_relay_rules_are_read_in_short_and_long_form() -> None:
    """One word is the mode; `off` is a word, not false; each part has defaults."""
    assert _set(SHOP).relay == RelayRules()
    assert RelayRules().mode is RelayMode.WITH_TASKS
    assert _set(SHOP + "relay: off\n").relay == RelayRules(mode=RelayMode.OFF)
    text = "relay: {mode: always, purge: {expires_h: 0, interval_s: 60}, compress: zstd}\n"
    assert _set(SHOP + text).relay == RelayRules(
        mode=RelayMode.ALWAYS,
        purge=PurgeRules(interval_s=60, expires_h=0, remain_gb=15),
        compress=Compression.ZSTD,
    )


def test_relay_rules_that_are_wrong_are_named() -> None:
    """Wrong words, units and fields are problems with their paths."""
    assert "relay.mode: found 'sometimes'" in _problems(SHOP + "relay: sometimes\n")
    text = "relay: {purge: {expires: 24, remain_gb: -1}, compress: gzip}\n"
    message = _problems(SHOP + text)
    assert "relay.purge.expires: found an unknown field, wanted 'expires_h' (nearest)" in message
    assert "relay.purge.remain_gb: found -1" in message
    assert "relay.compress: found 'gzip', wanted none | zstd" in message
    assert "relay: found a list of 0, wanted a mapping" in _problems(SHOP + "relay: []\n")


def test_default_relay_rules_are_not_written() -> None:
    """A document from before the field has the same canonical form; any other value is written with all fields."""
    spelled = "relay: {mode: with_tasks, purge: {expires_h: 24}}\n"
    assert plain_set(_set(SHOP + spelled)) == plain_set(_set(SHOP))
    assert "relay" not in plain_set(_set(SHOP))
    other = _set(SHOP + "relay: {purge: {remain_gb: 0}}\n")
    assert parse_set(plain_set(other)) == other
    assert plain_set(other)["relay"] == {
        "mode": "with_tasks",
        "purge": {"interval_s": 3600, "expires_h": 24, "remain_gb": 0},
        "compress": "none",
    }


def test_heartbeat_names_a_database_and_is_off_by_default() -> None:
    """It is written to canonical JSON only if it is on; system databases are refused, but not `millrace`."""
    assert _set(SHOP).heartbeat == HeartbeatRules()
    assert "heartbeat" not in plain_set(_set(SHOP))
    document = _set(SHOP + "heartbeat: {database: ops}\n")
    assert document.heartbeat == HeartbeatRules(database="ops", interval_s=10.0)
    assert document.heartbeat.table == "ops.heartbeat"
    assert plain_set(document)["heartbeat"] == {"database": "ops", "interval_s": 10.0}
    assert parse_set(plain_set(document)) == document
    assert _set(SHOP + "heartbeat: {database: millrace}\n").heartbeat.database == "millrace"
    for wrong in ("mysql", "a.b", "a*", "", "x" * 65):
        text = SHOP + f"heartbeat: {{database: '{wrong}'}}\n"
        assert "heartbeat.database: found" in _problems(text)
    assert "heartbeat.database: found nothing" in _problems(SHOP + "heartbeat: {interval_s: 5}\n")
    wanted = "heartbeat.interval_s: found 0.5, wanted seconds from 1 to 3600"
    assert wanted in _problems(SHOP + "heartbeat: {database: ops, interval_s: 0.5}\n")


def test_placement_labels_of_sets_and_apply_tasks_are_read() -> None:
    """A capture task has none: it moves with its set. Without labels, nothing is written."""
    labels = Placement(frozenset({"zone=a", "disk=big"}))
    text = "placement: {labels: {zone: a, disk: big}}\n"
    document, task = _set(SHOP + text), parse_task(plain_from_yaml(APPLY + text))
    assert isinstance(task, ApplyTask)
    assert (document.placement, task.placement) == (labels, labels)
    assert plain_set(document)["placement"] == {"labels": {"disk": "big", "zone": "a"}}
    assert "placement" not in plain_set(_set(SHOP))
    assert stream_of(document) == stream_of(_set(SHOP)), "its tasks do not restart"
    assert "placement: found an unknown field" in _problems(CAPTURE + text)
    for wrong in ("{zone: 1}", "{}", "zone", "{zone: 'a b'}", "{'': a}"):
        text = SHOP + f"placement: {{labels: {wrong}}}\n"
        assert "placement.labels: found" in _problems(text)


def test_hidden_table_needs_a_pattern_that_names_it() -> None:
    """`*.*` does not admit it; any other pattern that matches does, unless an exclude does too."""
    for include, exclude, is_admitted in (
        (("*.*",), (), False),
        (("ops.*",), (), True),
        (("*.*", "ops.heart*"), (), True),
        (("*.heartbeat",), (), True),
        (("ops.*",), ("ops.heartbeat",), False),
        (("*.*", "shop.*"), (), False),
    ):
        tables = TableFilter(include, exclude, "ops.heartbeat")
        assert tables.admits("ops", "heartbeat") is is_admitted
        assert tables.hides("ops", "heartbeat")
        assert not tables.hides("shop", "heartbeat")
    assert TableFilter(hidden="ops.heartbeat").admits("ops", "t")
    assert TableFilter(hidden="ops.heartbeat").admits_database("ops")


def test_capture_topic_defaults_to_the_set_name() -> None:
    """The contract's defaults hold, and a MariaDB position is text although it looks like a date."""
    task = parse_task(plain_from_yaml(CAPTURE))
    assert isinstance(task, CaptureTask)
    assert task.output.topic == "shop"
    assert task.output.registry == Registry("http://127.0.0.1:8081")
    assert task.start.gtid_set == "0-1-5"
    dated = parse_task(plain_from_yaml(CAPTURE.replace("0-1-5", "2001-12-14")))
    assert dated.start.gtid_set == "2001-12-14"


def test_apply_task_document_is_read() -> None:
    """Rules are enums, `first` is not a GTID set, and a registry is optional."""
    task = parse_task(plain_from_yaml(APPLY))
    assert isinstance(task, ApplyTask)
    assert task.start.is_first
    assert task.rules.conflict is ConflictPolicy.SKIP
    assert task.rules.lanes == 4
    assert task.source.registry == Registry()
    assert task.rules.safe_mode == SafeMode()


def test_safe_mode_names_a_gtid_set() -> None:
    """White space in the set is dropped; a set that is missing or malformed is a problem of its field."""
    text = APPLY + '\nsafe_mode: {until_gtid: "0-1-5, 1-1-7"}\n'
    task = parse_task(plain_from_yaml(text))
    assert isinstance(task, ApplyTask)
    assert task.rules.safe_mode == SafeMode("0-1-5,1-1-7")
    wanted = "found nothing, wanted a GTID set"
    assert f"safe_mode.until_gtid: {wanted}" in _problems(APPLY + "\nsafe_mode: {}\n")
    malformed = APPLY + "\nsafe_mode: {until_gtid: first}\n"
    assert "safe_mode.until_gtid: found 'first'" in _problems(malformed)


def test_all_problems_of_a_document_are_reported_together() -> None:
    """One error names each field with path, found value and expected value."""
    message = _problems(
        """
        set: ../shop
        members: [{host: "a b", port: 99999, prot: 1}, {host: x}, {host: x}]
        passwrod: env:X
        user: ""
        """
    )
    assert "members[0].port: found 99999, wanted a whole number from 1 to 65535" in message
    assert "members[0].prot: found an unknown field, wanted 'port' (nearest)" in message
    assert "members[0].host: found 'a b'" in message
    assert "members[2]: found x:3306, wanted each server once" in message
    assert "passwrod: found an unknown field, wanted 'password' (nearest)" in message
    assert "password: found nothing, wanted a reference: env:" in message
    assert "set: found '../shop'" in message
    assert "8 problems" in message


LONG = "a" * 64  # a label has at most 63 characters


@pytest.mark.parametrize("host", ["a..b", ".a", LONG, f"{LONG}.b", f"a.{LONG}"])
def test_host_that_no_socket_accepts_is_refused(host: str) -> None:
    """The host is of a member, a broker or a registry; a lookup of the name would raise UnicodeError."""
    message = _problems(SHOP.replace("db2.example.org", host))
    assert f"members[1].host: found '{host[:40]}" in message
    assert "wanted a host name or address" in message
    message = _problems(CAPTURE.replace("127.0.0.1", host))
    assert f"kafka.bootstrap: found '{host[:40]}" in message
    assert f"registry.url: found 'http://{host[:40]}" in message


@pytest.mark.parametrize(
    "host", ["a-b.c_d.e", LONG[1:], f"{LONG[1:]}.{LONG[1:]}", "::1", "fe80::1"]
)
def test_host_that_a_socket_accepts_is_accepted(host: str) -> None:
    """Labels may have their full length, and addresses may be of both kinds."""
    document = _set(SHOP.replace("db2.example.org", f'"{host}"'))
    assert document.members[1].host == host


def test_password_in_a_document_is_refused_and_not_repeated() -> None:
    """The error shows how to refer to a password and does not show the value."""
    message = _problems(SHOP.replace("env:MILLRACE_SHOP_PASSWORD", "hunter2:canary"))
    assert "env:NAME" in message
    assert "canary" not in message


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("kind: kapture", "kind: found 'kapture', wanted capture | apply"),
        ("start: yesterday", "start: found 'yesterday', wanted first, load, or a GTID set"),
        ("lanes: true", "lanes: found true, wanted a whole number from 1 to 64"),
        ("lanes: 65", "lanes: found 65"),
        ("consistency: eventual", "consistency: found 'eventual', wanted causal | transactional"),
        ("include: ['*']", "include[0]: found '*', wanted a pattern database.table"),
        ("registry: http://user:canary@h:1", "registry.url: found a URL with a user, not shown"),
        ("registry: ftp://h", "registry.url: found 'ftp://h', wanted a URL"),
        ("registry: {tls_ca: /ca.pem}", "registry.url: found nothing"),
        ("registry: {url: 'http://h:1', token: env:A}", "registry.url: found http with a CA or"),
        ("registry: {url: 'https://h:1', token: canary}", "registry.token: found a value that is"),
        ("registry: {url: 'https://h:1', user: u}", "registry.password: found nothing"),
        ("registry: {url: 'https://h:1', password: env:A}", "registry.user: found nothing"),
        (
            "registry: {url: 'https://h:1', user: u, password: env:A, token: env:A}",
            "registry.token: found a value, wanted either a token",
        ),
        ("kafka: {bootstrap: nowhere}", "kafka.bootstrap: found 'nowhere', wanted Kafka servers"),
        ("kafka: 9092", "kafka: found 9092, wanted a mapping: {bootstrap: "),
        ("start: {gtid_set: 0-1-3}", "a GTID set as text, such as 0-1-23 (MariaDB) or"),
        ("kafka:", "kafka: found nothing, wanted a mapping"),
        ("target: [a]", "target: found a list of 1, wanted a name"),
        ("topic: ..", "topic: found '..'"),
    ],
)
def test_invalid_field_is_named_with_the_expected_value(changed: str, message: str) -> None:
    """The error has path, found value and expected value for each kind of field."""
    field = changed.partition(":")[0]
    kept = [line for line in APPLY.splitlines() if not line.startswith(f"{field}:")]
    assert message in _problems("\n".join([*kept, changed]))


def test_one_error_lists_unsupported_and_malformed_fields() -> None:
    """The error includes unsupported features and a member that is not a mapping."""
    message = _problems(
        APPLY.replace("consistency: causal", "") + "consistency: eventual\nlanes: 0\n"
    )
    assert "consistency: found 'eventual'" in message
    assert "lanes: found 0" in message
    assert "members[0]: found 'db1:3306', wanted a mapping: {host: db1, port: 3306}" in _problems(
        "set: shop\nmembers: ['db1:3306']\nuser: u\npassword: env:X\n"
    )


def test_capture_of_no_table_is_refused() -> None:
    """It would run, catch up and publish nothing. No field means every table, and excludes are optional."""
    assert "include: found 0 entries, wanted a list of 1 to 1000" in _problems(
        CAPTURE + "include: []\n"
    )
    task = parse_task(plain_from_yaml(CAPTURE.replace('["shop.tmp*"]', "[]")))
    assert isinstance(task, CaptureTask)
    assert task.tables == TableFilter(("*.*",), ())


@pytest.mark.parametrize("text", ["", "just text", "- a\n- b", "5"])
def test_document_must_be_a_mapping(text: str) -> None:
    """Any other value is one clear problem, not a crash."""
    assert "wanted a mapping" in _problems(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("set: a\nset: b", "line 2, column 1: a key is given twice"),
        ("a: &x [1]\nb: *x", "an alias (*name) is not allowed"),
        ("a: !!python/object:os.system {}", "a tag (!name) is not allowed"),
        ("a: [", "line 1"),
        ("[" * 100 + "]" * 100, "nested deeper than"),
        ("a: '" + "x" * 300_000 + "'", "larger than"),
        ("? [a]\n: b", "a key is not text"),
        ("a: \x07", "is not YAML"),
    ],
)
def test_text_beyond_plain_yaml_is_refused(text: str, message: str) -> None:
    """Alias bombs, objects and duplicate keys are refused with their place."""
    with pytest.raises(Fatal) as caught:
        plain_from_yaml(text)
    assert caught.value.code == "MR-4102"
    assert message in caught.value.message


def test_oversized_document_and_second_document_are_reported_as_such() -> None:
    """The fix is not to correct a line; the second document is found wherever it begins."""
    for text, message, fix in (
        ("a: '" + "x" * 300_000 + "'", "is larger than 262144 bytes", "Make it shorter"),
        ("a: 1\n---\nb: 2\n", "more than one document: another begins at line 2", "its own file"),
    ):
        with pytest.raises(Fatal) as caught:
            plain_from_yaml(text)
        assert caught.value.code == "MR-4102"
        assert message in caught.value.message
        assert fix in caught.value.fix


def test_document_given_to_the_wrong_command_names_the_right_one() -> None:
    """The user is not asked to correct valid fields."""
    with pytest.raises(Fatal, match="is the document of a set, not of a task") as caught:
        parse_task(plain_from_yaml(SHOP))
    assert "millrace set create" in caught.value.fix
    for text in (CAPTURE, APPLY):
        with pytest.raises(Fatal, match="is the document of a task, not of a set") as caught:
            parse_set(plain_from_yaml(text))
        assert "millrace task create" in caught.value.fix


def test_yaml_words_that_look_like_values_stay_text() -> None:
    """`on`, `1:30` and dates are text; true, ~ and 5 are not."""
    assert plain_from_yaml("a: on\nb: 1:30\nc: 2001-12-14\nd: 012") == {
        "a": "on",
        "b": "1:30",
        "c": "2001-12-14",
        "d": "012",
    }
    assert plain_from_yaml("a: true\nb: ~\nc: 5\nd: -1.5\ne:") == {
        "a": True,
        "b": None,
        "c": 5,
        "d": -1.5,
        "e": None,
    }


def test_newer_format_is_distinguished_from_an_invalid_document() -> None:
    """The user is not asked to correct fields that a newer program wrote correctly."""
    with pytest.raises(Fatal) as caught:
        parse_set({**plain_set(_set(SHOP)), "format": 2})
    assert caught.value.code == "MR-4107"


def test_canonical_json_writes_defaults() -> None:
    """A later change of a default must not change an existing task."""
    text = canonical_json(plain_task(parse_task(plain_from_yaml(APPLY))))
    assert text == (
        '{"conflict":"skip","consistency":"causal","exclude":[],"format":1,"include":["*.*"],"kafka":{"bootstrap":"127.0.0.1:9092"},'
        '"kind":"apply","lanes":4,"start":"first","target":"warehouse","task":"shop-to-warehouse","topic":"shop"}'
    )


RULES = """
tables:
  - {from: "shop_*.orders", to: "w.orders_{1}", columns: {drop: [note], rename: {mail: email}}}
  - {from: "shop_*.*"}
"""


def test_rules_of_an_apply_task_are_kept() -> None:
    """Documents without them have the same canonical JSON as before."""
    task = parse_task(plain_from_yaml(APPLY + RULES))
    assert isinstance(task, ApplyTask)
    assert task.view.rules[0].rename == (("mail", "email"),)
    assert '"tables":[{"columns":' in canonical_json(plain_task(task))
    assert parse_task(plain_task(task)) == task
    loading = parse_task(plain_from_yaml(APPLY.replace("first", "load") + RULES))
    assert isinstance(loading, ApplyTask)
    assert loading.start.is_load
    assert '"include":["*.*"]' in canonical_json(plain_task(parse_task(plain_from_yaml(APPLY))))


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ('tables: [{from: "s.*", to: w.t, merge: true}]\n', "tables[0].merge"),
        ('tables: [{from: "s.*", to: "MySQL.{table}"}]\n', "tables[0].to"),
        ('tables: [{from: "s.*", to: "millrace.{table}"}]\n', "tables[0].to"),
        (RULES + 'include: ["s.*"]\n', "include and tables"),
    ],
)
def test_unbuilt_parts_of_views_on_targets_are_refused(more: str, refused: str) -> None:
    """By its place in the document; a view that only chooses tables refuses nothing."""
    apply = APPLY.replace("start: first\n", "") if "start" in more else APPLY
    assert refused in _problems(apply + more)


def test_table_needs_an_include_and_no_exclude() -> None:
    """Patterns split at their first dot; case matters."""
    tables = TableFilter(("shop.*",), ("shop.tmp*",))
    assert tables.admits("shop", "orders")
    assert tables.admits("shop", "a.b")
    assert not tables.admits("Shop", "orders")
    assert not tables.admits("shop", "tmp_1")
    assert not tables.admits("workshop", "orders")


def test_secret_is_read_where_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment and file are read; exactly one line end of a file is dropped."""
    monkeypatch.setenv("H6_SECRET", "a b ")
    file = tmp_path / "secret"
    file.write_text("pass\n\n")
    assert resolve_secret(_reference("env:H6_SECRET")) == "a b "
    assert resolve_secret(_reference(f"file:{file}")) == "pass\n"


def test_unreadable_secret_is_named_by_its_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing, empty, too large, or not text: MR-4106 names the reference and never shows the bytes."""
    monkeypatch.delenv("H6_SECRET", raising=False)
    monkeypatch.setenv("H6_EMPTY", "")
    (tmp_path / "binary").write_bytes(b"canary\xff")
    (tmp_path / "large").write_bytes(b"x" * 70_000)
    for text in (
        "env:H6_SECRET",
        "env:H6_EMPTY",
        f"file:{tmp_path}/missing",
        f"file:{tmp_path}",
        f"file:{tmp_path}/binary",
        f"file:{tmp_path}/large",
    ):
        with pytest.raises(Fatal) as caught:
            resolve_secret(_reference(text))
        assert caught.value.code == "MR-4106"
        assert text in caught.value.message
        assert "canary" not in repr(caught.value)


def test_fix_of_an_unreadable_file_fits_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that exists must be made readable; one that a hardened service does not see must be moved."""
    refused = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    host = os.uname().nodename
    for path, error, wanted, unwanted in (
        (
            "/etc/millrace/p",
            refused,
            f"Make /etc/millrace/p readable for user {_user()} on host {host}",
            "Create",
        ),
        (
            "/etc/millrace/p",
            missing,
            f"Create /etc/millrace/p for user {_user()} on host {host}",
            "PrivateTmp",
        ),
        ("/tmp/p", missing, "PrivateTmp", "ProtectHome"),
        ("/home/me/p", refused, "ProtectHome", "PrivateTmp"),
    ):

        def fail(*_: object, found: OSError = error) -> None:
            raise found

        monkeypatch.setattr(Path, "open", fail)
        with pytest.raises(Fatal) as caught:
            resolve_secret(_reference(f"file:{path}"))
        assert caught.value.code == "MR-4106"
        assert wanted in caught.value.fix
        assert unwanted not in caught.value.fix
        assert "millrace task resume TASK" in caught.value.fix


def _user() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name


def test_temporarily_unreadable_secret_is_retried(tmp_path: Path) -> None:
    """The secret exists and its place needs no fix: Retryable MR-4014."""
    (tmp_path / "secret").write_text("s3cret")
    reference = _reference(f"file:{tmp_path}/secret")
    with no_descriptor_left(), pytest.raises(Retryable) as caught:
        resolve_secret(reference)
    assert caught.value.code == "MR-4014"
    assert resolve_secret(reference) == "s3cret"


def _reference(text: str) -> SecretReference:
    reference = SecretReference.parse(text)
    assert reference is not None
    return reference


def test_capture_task_may_set_topic_properties() -> None:
    """Each value is optional; without any, the document does not change."""
    plain = plain_from_yaml(CAPTURE)
    assert isinstance(plain, dict)
    assert "topic_settings" not in plain_task(parse_task(plain))
    asked = {"replication_factor": 3, "min_insync_replicas": 2, "retention_ms": -1}
    task = parse_task({**plain, "topic_settings": asked})
    assert isinstance(task, CaptureTask)
    assert task.topic_options == TopicOptions(**asked)
    assert parse_task(plain_task(task)) == task
    for wrong in ({"min_insync_replicas": 3, "replication_factor": 2}, {"replicas": 3}, 3):
        with pytest.raises(Fatal, match="topic_settings"):
            parse_task({**plain, "topic_settings": wrong})


def test_capture_task_chooses_compression_and_idle_records() -> None:
    """Without a choice the document is the same as before the fields existed."""
    plain = plain_from_yaml(CAPTURE)
    assert isinstance(plain, dict)
    assert not {"compression", "resolved_idle_s"} & plain_task(parse_task(plain)).keys()
    for compression in TopicCompression:
        task = parse_task({**plain, "compression": compression.value, "resolved_idle_s": 300})
        assert isinstance(task, CaptureTask)
        assert task.rules == CaptureRules(compression=compression, resolved_idle_s=300.0)
        assert parse_task(plain_task(task)) == task
    for wrong in ({"compression": "lzma"}, {"resolved_idle_s": 4}, {"resolved_idle_s": 601}):
        with pytest.raises(Fatal, match=next(iter(wrong))):
            parse_task({**plain, **wrong})


# as authors of documents for Debezium, DM, Maxwell, replica filters or a sink write them
FOREIGN = {
    "where": "`where` in a rule",
    "columns": "`columns` in a rule",
    "column.exclude.list": "`columns` in a rule",
    "mask": "`mask` in a rule",
    "route": "`to` in a rule",
    "topic.prefix": "`topics` of a publish task",
    "tables": "`include`",
    "table.include.list": "`include`",
    "replicate-ignore-table": "`exclude`",
    "value.converter": "`records` of a publish task",
    "sink": "`kind`",
    "transforms": "does not transform",
    "server.id": "derives its server id",
    "snapshot.mode": "`start: load`",
    "tasks.max": "`lanes`",
    "partitions": "has one partition",
    "shards": "merges no shards",
}


@pytest.mark.parametrize("document", [CAPTURE, APPLY, SHOP])
def test_field_of_another_tool_is_answered_by_name(document: str) -> None:
    """The answer names our field, or there is none; never a field that is only spelled alike."""
    asked = {n: answer for n, answer in FOREIGN.items() if n != "tables" or document != APPLY}
    message = _problems(document + "".join(f"{name}: 1\n" for name in asked))
    lines = {line.split(":")[0].strip(): line for line in message.splitlines()[1:]}
    for name, answer in asked.items():
        assert answer in lines[name]
        assert "(nearest)" not in lines[name]


def test_another_format_of_records_is_answered() -> None:
    """``format`` is the version of a document; a text is taken for a format of records."""
    assert "in the field `records`" in _problems(CAPTURE + "format: json\n")
    assert "wanted 1, the version" in _problems(CAPTURE + "format: 0\n")


def test_misspelled_field_is_compared_with_ours() -> None:
    """A name that no other tool has is answered by the nearest field."""
    assert "'include' (nearest)" in _problems(CAPTURE + "includ: ['*.*']\n")
