"""Writes rows to the target inside an open target transaction: fast in multi-row statements, or one by one.

``write`` merges the changes of one row into a net change (``consumer.tables.merge_rules``) and sorts net changes into
levels (``consumer.write.changes``). It sorts each level by table and operation and makes multi-row statements with
limited rows and bytes. Matched rows are counted. An INSERT of an existing row, or an UPDATE or DELETE that does not
match all of its rows, is Fatal MR-5010. The caller then rolls back and uses ``write_carefully`` on the original
records, which finds the row and applies the conflict policy:

    conflict                       stop       overwrite                        skip
    INSERT of an existing row      MR-5010    REPLACE of all rows in its way   unchanged
    UPDATE of a missing row        MR-5010    REPLACE by the after image       unchanged
    UPDATE to another row's key    MR-5010    DELETE its row, then REPLACE     unchanged
    DELETE of a missing row        MR-5010    unchanged                        unchanged
    refused by a foreign key       MR-5010    as above                         unchanged

In a table with columns that no record has, REPLACE would give them their defaults. INSERT … ON DUPLICATE KEY UPDATE
takes its place, and an UPDATE to another row's key overwrites that row before it deletes its own. If the table has a
further unique key and a view, ``overwrite`` refuses it with MR-5010.

Before the policy is applied, the table's structure is read again. If the table was altered, the error is Retryable
MR-5023: the plan of lanes may not have known a key, and the conflict may be false.

If a statement for one row changes more rows, or if its generated key does not find the written row, the error is Fatal
under any policy (MR-5019, MR-5017): the target's table differs from its description.

Each decision of ``overwrite`` and ``skip`` is stored in ``millrace.conflict`` in the same target transaction
(``consumer.write.conflict``). ``stop`` leaves the conflict in ``blocking`` for the caller to store after its rollback.
A table without a key has no row to overwrite, so ``overwrite`` refuses it with MR-5010.

A row with a value or size that the target refuses is Fatal (MR-5011, MR-5014), unless the task keeps it aside: then
``write_carefully`` takes it back to its savepoint, and leaves out all later rows of its keys
(``consumer.write.aside``).

Rows in the range of safe mode (``consumer.window.safe_mode``) are written by REPLACE and DELETE. They are not counted.
Only a foreign key can refuse one, which is Fatal MR-5025 under any policy.

Overwriting runs without foreign key checks: no cascade fires and no child prevents it. Children of a removed row stay
unchanged, even if a cascade that the source does not log would have changed them. Until a record changes them, they
refer to the new row with that key, or to none.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from millrace.consumer.kernel.merge import AFTER, BEFORE, CHANGE_OP, LEVEL, MOVES, OP_ABSENT, PLACE
from millrace.consumer.kernel.walk import (
    HAS_FALLBACK,
    IS_SAFE,
    OP,
    OP_CREATE,
    OP_DELETE,
    OP_UPDATE,
    SEQ,
    SLOT,
)
from millrace.consumer.records.numbers import Ints, RecordNumbers, Slots
from millrace.consumer.records.rows import Rows
from millrace.consumer.tables import table_plan as images
from millrace.consumer.tables.generated_columns import fix_of_columns, fix_of_refusal
from millrace.consumer.tables.json_documents import filled_exactly, has_lost_type
from millrace.consumer.tables.load_data import LOAD_ROWS_MAX
from millrace.consumer.tables.table_plan import Pieces, TablePlan, compared, make_shape
from millrace.consumer.tables.table_plans import TablePlans, slots_of
from millrace.consumer.target.conflicts import Conflict, store_conflict
from millrace.consumer.write.aside import PartAside
from millrace.consumer.write.changes import (
    OP_REPLACE,
    OP_RESTORE,
    changes_of,
    unchecked,
    unconstrained,
)
from millrace.consumer.write.conflict import conflict_kind, is_foreign_key, make_conflict
from millrace.consumer.write.row_versions import VersionWriter, version_of
from millrace.consumer.write.statements import (
    OPS,
    Single,
    byte_parts,
    statement_bytes,
    statement_parts,
)
from millrace.drivers.mysql.catalog import CatalogColumn, has_changed
from millrace.drivers.mysql.connection import LENIENT_MODE, STRICT_MODE, MySqlSession
from millrace.drivers.mysql.errors import WRONG_TEXT
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.schemas.documents import ConflictPolicy
from millrace.schemas.gtid import Flavour
from millrace.schemas.stages import REFUSED_KIND
from millrace.wording import counted

LOAD_ROWS_MIN = 100  # LOAD DATA takes a round trip more, and saves at least 1 us a row
DERIVED_ROW_BYTES_MAX = 1 << 15  # of a row's literals, far below the limit of 65,536 in `_alone`
_KEY_TEXT_MAX = 200
_UTF8MB3 = ("utf8", "utf8mb3")

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ConflictRule:
    """The conflict policy of a task."""

    task: str
    policy: ConflictPolicy


class RowWriter:
    """Writes walked rows through one connection."""

    def __init__(
        self, connection: MySqlSession, plans: TablePlans, conflict_rule: ConflictRule
    ) -> None:
        self._connection = connection
        self._plans = plans
        self._conflict_rule = conflict_rule
        self._checks_foreign_keys = self._checks_constraints = True
        self._compared: set[tuple[str, str, bool]] = set()  # in this target transaction
        self._versions = VersionWriter(plans, self._run, self._run_one, self._filled)
        self.statement_count = 0
        self.conflicts: list[str] = []  # the kinds of those in the open target transaction
        # the conflict of a Fatal MR-5010 of ``write_carefully``
        self.blocking: Conflict | None = None

    def write(self, rows: Rows, numbers: RecordNumbers) -> None:
        """Apply these records (numbers in seq order). After Fatal MR-5010 or another error, roll back."""
        numbers, sequences = split_sequences(self._plans, rows, numbers)
        for number in sequences:
            self._set_sequence(rows, number)
        numbers, versioned = self._versions.split(rows, numbers)
        self._write_versions(rows, versioned)
        if not len(numbers):
            return
        for changes in changes_of(self._plans, rows, numbers):
            if len(changes):
                self._check_constraints(rows, int(changes[0, PLACE]))
            self._write_changes(rows, changes)
        self._restore_checks()

    def _write_changes(self, rows: Rows, changes: Ints) -> None:
        about = rows.records[changes[:, PLACE]]
        mixed = about[:, HAS_FALLBACK] | (unchecked(about).astype(np.int64) << 2)
        group = self._plans.grouped(Slots(about[:, SLOT]))
        kind = (changes[:, LEVEL] * len(rows.programs.ids) + group) << 12
        kind |= changes[:, CHANGE_OP] << 4 | mixed
        order = np.argsort(kind, kind="stable")
        changes, kind = changes[order], kind[order]
        cuts = np.flatnonzero(kind[1:] != kind[:-1]) + 1
        for run in np.split(changes, cuts):
            self._write_run(rows, run)

    def _write_versions(self, rows: Rows, numbers: Ints) -> None:
        """In their order; the session's settings are restored at the end."""
        for part in self._versions.parts(rows, numbers):
            self._check_foreign_keys(rows, int(part[0]))
            self._check_constraints(rows, int(part[0]))
            if len(part) == 1:
                matched = self._write_one(rows, Single.of(rows, int(part[0])))
            else:
                matched = self._versions.write_part(rows, part)
            if matched != len(part):
                raise Fatal("MR-5010", "the row does not exist")
        self._versions.restore()
        self._restore_checks()

    def _write_run(self, rows: Rows, run: Ints) -> None:
        """Net changes of one table of the target and one operation that share no key."""
        place, op = int(run[0, PLACE]), int(run[0, CHANGE_OP])
        slot = int(rows.records[place, SLOT])
        table_plan = self._plans.table_plan(slot)
        if op == OP_RESTORE:
            self._set_foreign_key_checks(wanted=False)
        else:
            self._check_foreign_keys(rows, place)
        pieces = table_plan.pieces(OPS[op])
        is_single = rows.records[place, HAS_FALLBACK] or table_plan.is_identity_generated
        if pieces is None or is_single:
            self._write_singly(rows, run)
            return
        is_counted = not rows.records[place, IS_SAFE]
        written = run
        alone = self._alone(rows, run, table_plan, pieces)
        if alone.any():
            if op in (OP_CREATE, OP_REPLACE) and not table_plan.computed:
                self._insert_expressions(rows, run[alone])
            else:
                self._write_singly(rows, run[alone])
            run = run[~alone]
        firsts, around = rows.firsts(run[:, BEFORE], run[:, AFTER]), pieces.around
        if op == OP_CREATE and len(run) >= LOAD_ROWS_MIN and self._load(rows, firsts, slot):
            self._verify(rows, written, table_plan)
            return
        for part in statement_parts(rows, firsts, pieces, self._plans.inventory):
            matched = self._run(rows.text_of(part, pieces.shape, around))
            if is_counted and matched != (0 if op == OP_ABSENT else len(part)):
                table = table_plan.shown
                why = f"{OPS[op]} of {counted(len(part), 'row')} of {table} matched {matched}"
                raise Fatal("MR-5010", why, table=table)
        if op in (OP_CREATE, OP_UPDATE, OP_REPLACE):
            self._verify(rows, written, table_plan)

    def _verify(self, rows: Rows, run: Ints, table_plan: TablePlan) -> None:
        """Fatal MR-5017 if the target has stored another generated value than a record of these has."""
        if not table_plan.verified:
            return
        pieces = self._plans.verifying(int(rows.records[run[0, PLACE], SLOT]))
        if pieces is not None:
            firsts = rows.firsts(run[:, BEFORE], run[:, AFTER])
            parts = statement_parts(rows, firsts, pieces, self._plans.inventory)
            texts = ((len(part), rows.text_of(part, pieces.shape, pieces.around)) for part in parts)
            if all(self._run(text) == count for count, text in texts):
                return
        for change in run:
            self._verify_one(rows, _single(rows, change), table_plan)

    def _verify_one(
        self, rows: Rows, single: Single, table_plan: TablePlan, which: str = "find_verified"
    ) -> None:
        if self._run(self._filled(rows, single, which)):
            return
        found = self._connection.query(self._filled(rows, single, "each_verified"))
        each = found[0] if found else (0,) * len(table_plan.verified)
        raise not_generated_alike(
            table_plan,
            [
                column
                for (_, column), is_same in zip(table_plan.verified, each, strict=True)
                if not is_same
            ],
            self._conflict_rule.task,
        )

    def _insert_expressions(self, rows: Rows, run: Ints) -> None:
        """INSERT or REPLACE of rows with JSON by expression, many in a statement."""
        first = _single(rows, run[0])
        slot = int(rows.records[first.number, SLOT])
        head = self._plans.template(slot, first.what).first.removesuffix(b"(")
        tail = self._plans.table_plan(slot).on_duplicate if first.what == "replace" else b""
        texts = [
            self._filled(rows, _single(rows, change), first.what).removesuffix(tail)[len(head) :]
            for change in run
        ]
        for part in byte_parts(texts, self._plans.inventory):
            matched = self._run(head + b",".join(part) + tail)
            if matched != len(part) and not rows.records[first.number, IS_SAFE]:
                table = self._plans.table_plan(slot).shown
                why = f"insert of {counted(len(part), 'row')} of {table} matched {matched}"
                raise Fatal("MR-5010", why, table=table)

    def _load(self, rows: Rows, firsts: Ints, slot: int) -> bool:
        """Insert rows by LOAD DATA; False if the table takes INSERT.

        If a row was skipped or changed, the table takes INSERT from now on, and the caller writes this part carefully.
        """
        inventory = self._plans.inventory
        sql = self._plans.load_statement(slot) if inventory.allows_load_data else None
        if sql is None:
            return False
        table_plan = self._plans.table_plan(slot)
        for part in statement_parts(rows, firsts, table_plan.insert, inventory, LOAD_ROWS_MAX):
            self.statement_count += 1
            lines = rows.lines_of(part, table_plan.insert.shape)
            if not self._connection.load(sql, lines, packet_bytes=statement_bytes(inventory)):
                self._plans.refuse_load(slot)
                table = table_plan.shown
                why = (
                    f"LOAD DATA of {counted(len(part), 'row')} of {table} skipped or changed a row"
                )
                raise Fatal("MR-5010", why, table=table)
        return True

    def _alone(self, rows: Rows, run: Ints, table_plan: TablePlan, pieces: Pieces) -> Flags:
        """True for the net changes of one operation that need a statement each.

        These are rows whose key changes, JSON that needs an expression, and on MariaDB updates to long values, because
        MariaDB's derived tables store the length of a literal modulo 65,536.
        """
        op = int(run[0, CHANGE_OP])
        alone: Flags = np.zeros(len(run), np.bool_)
        if op == OP_UPDATE:
            alone |= run[:, MOVES] != 0
            if self._plans.inventory.flavour is Flavour.MARIADB:
                firsts = rows.firsts(run[:, BEFORE], run[:, AFTER])
                alone |= rows.text_sizes(firsts, pieces.shape) > DERIVED_ROW_BYTES_MAX
        if op in (OP_CREATE, OP_UPDATE, OP_REPLACE) and table_plan.documents:
            width = len(table_plan.layout.branches)
            alone |= rows.inexact(
                run[:, AFTER], table_plan.documents, width=width, marks=table_plan.marks
            )
        return alone

    def _run(self, sql: bytes) -> int:
        if len(sql) >= self._plans.inventory.packet_bytes_max:
            limit = self._plans.inventory.packet_bytes_max
            raise Fatal(
                "MR-5014",
                f"{len(sql) + 1} bytes, max_allowed_packet is {limit}",
                bytes=len(sql) + 1,
            )
        self.statement_count += 1
        return self._connection.run(sql)

    def _check_foreign_keys(self, rows: Rows, number: int) -> None:
        self._set_foreign_key_checks(wanted=not unchecked(rows.records[number]))

    def _set_foreign_key_checks(self, *, wanted: bool) -> None:
        """Callers restore the default at the end, because the session outlives this writer."""
        if wanted != self._checks_foreign_keys:
            self._connection.run(b"SET SESSION foreign_key_checks=%d" % wanted)
            self._checks_foreign_keys = wanted

    def _check_constraints(self, rows: Rows, number: int) -> None:
        self._set_constraint_checks(wanted=not unconstrained(rows.records[number]))

    def _set_constraint_checks(self, *, wanted: bool) -> None:
        """MySQL has no such setting: there a CHECK is enforced or not."""
        is_settable = self._plans.inventory.flavour is Flavour.MARIADB
        if is_settable and wanted != self._checks_constraints:
            self._connection.run(b"SET SESSION check_constraint_checks=%d" % wanted)
            self._checks_constraints = wanted

    def _restore_checks(self) -> None:
        self._set_foreign_key_checks(wanted=True)
        self._set_constraint_checks(wanted=True)

    def _write_singly(self, rows: Rows, run: Ints) -> None:
        for change in run:
            single = _single(rows, change)
            matched = self._write_one(rows, single)
            if matched != 1 and not rows.records[single.number, IS_SAFE]:
                raise Fatal("MR-5010", "the row does not exist")

    def _write_one(self, rows: Rows, single: Single) -> int:
        """The number of matched rows: 0 or 1. REPLACE adds one for each row that it removes."""
        table_plan = self._plans.table_plan(int(rows.records[single.number, SLOT]))
        if table_plan.target.is_sequence:
            self._set_sequence(rows, single.number)
            return 1
        if table_plan.period:
            matched = self._versions.write_one(rows, single)
        elif single.what == "move":
            matched = self._move(rows, single)
        else:
            sql = self._filled(rows, single, single.what)
            matched = self._run_one(rows, single.number, sql)
        if matched:
            self._check_one(rows, single, matched)
        return matched

    def _move(self, rows: Rows, single: Single) -> int:
        """Write the after image and leave no row of the before image. Columns that no record has keep their values.

        A row that has the new key remains, as another one; else the row moves; else it is inserted.
        """
        for which in ("update_other", "update"):
            if self._run_one(rows, single.number, self._filled(rows, single, which)):
                if which == "update_other":
                    self._run_one(rows, single.number, self._filled(rows, single, "delete"))
                return 1
        self._run_one(rows, single.number, self._filled(rows, single, "replace"))
        return 1

    def _set_sequence(self, rows: Rows, number: int) -> None:
        """SETVAL, then the whole row if the sequence is not as the record says (``consumer.tables.row_statements``)."""
        for which in ("setval", "is_set", "insert"):
            matched = self._run(self._filled(rows, Single.of(rows, number), which))
            if which == "is_set" and matched:
                return

    def _check_one(self, rows: Rows, single: Single, matched: int) -> None:
        """Fatal MR-5019 if more than one row was changed, MR-5017 if its key does not find the written row."""
        slot, what = int(rows.records[single.number, SLOT]), single.what
        table_plan = self._plans.table_plan(slot)
        table = table_plan.shown
        if what not in ("replace", "restore") and matched > 1:
            raise Fatal("MR-5019", f"{what} of a row of {table} matched {matched}", table=table)
        if what in ("delete", "restore"):
            return
        if table_plan.computed and table_plan.marks:
            self._check_computed(rows, single, table_plan)
        is_keyed = table_plan.is_identity_generated
        if is_keyed and self._run(self._filled(rows, single, "find")) != 1:
            found = [column for _, column in table_plan.named if column.generated]
            raise not_generated_alike(table_plan, found, self._conflict_rule.task)
        if not table_plan.verified:
            return
        what = version_of(rows, table_plan, single.number).what if table_plan.period else "insert"
        if what == "history":
            self._verify_one(rows, single, table_plan, "find_verified_history")
        elif what in ("insert", "update"):
            self._verify_one(rows, single, table_plan)

    def _check_computed(self, rows: Rows, single: Single, table_plan: TablePlan) -> None:
        """Fatal MR-5017 if a type that is lost inside JSON changes what the target computes."""
        if not has_lost_type(rows, single.firsts, table_plan):
            return
        if self._run(self._filled(rows, single, "find_computed")) != 1:
            table = table_plan.shown
            names = ", ".join(column.name for _, column in table_plan.computed)
            why = f"JSON of a row of {table} has a TIMESTAMP or bytes, and {names} is not the record's value"
            raise Fatal("MR-5017", why, table=table)

    def _run_one(self, rows: Rows, number: int, sql: bytes) -> int:
        if not (rows.records[number, HAS_FALLBACK] and self._has_index_zero(rows, number)):
            return self._run(sql)
        # an ENUM's index 0 can't be written in a strict mode
        self._connection.run(b"SET SESSION sql_mode='" + LENIENT_MODE.encode() + b"'")
        try:
            return self._run(sql)
        finally:  # even after a refusal, because the policy may skip the row
            if self._connection.is_open:  # otherwise the first error must remain the reason
                self._connection.run(b"SET SESSION sql_mode='" + STRICT_MODE.encode() + b"'")

    def _filled(self, rows: Rows, single: Single, which: str) -> bytes:
        slot = int(rows.records[single.number, SLOT])
        template, table_plan = self._plans.template(slot, which), self._plans.table_plan(slot)
        # without a key, the before image is compared, too
        if table_plan.documents or table_plan.generated_documents:
            return filled_exactly(rows, single.firsts, template, table_plan)
        return rows.filled(single.firsts, template)

    def _has_index_zero(self, rows: Rows, number: int) -> bool:
        layout = self._plans.table_plan(int(rows.records[number, SLOT])).layout
        return any("int" in branches and "string" in branches for branches in layout.branches)

    def settle(self) -> None:
        """Restore the session's default settings after a failure; close the connection if that fails."""
        self._checks_foreign_keys = self._checks_constraints = True
        self.conflicts.clear()
        usual = b"SET SESSION foreign_key_checks=1/*M!, check_constraint_checks=1 */, sql_mode='"
        usual += STRICT_MODE.encode() + b"'"
        try:
            self._connection.run(usual)
            self._versions.restore()
        except MillraceError:
            self._connection.close()
            raise

    # ---- one by one -------------------------------------------------------------------------------

    def write_carefully(
        self, rows: Rows, numbers: RecordNumbers, aside: PartAside | None = None
    ) -> None:
        """Apply these records one by one in the given order. A Fatal error names the row.

        ``aside`` keeps rows that the target refuses, and those that follow them.
        """
        self._compared.clear()
        for number in map(int, numbers):
            if aside is not None:
                if aside.follows(number):
                    continue
                self._connection.query("SAVEPOINT millrace_row")
            self._check_foreign_keys(rows, number)
            self._check_constraints(rows, number)
            refused: Fatal | None = None
            try:
                why = ""
                if rows.records[number, IS_SAFE]:
                    self._repeat(rows, number)
                elif self._write_one(rows, Single.of(rows, number)) != 1:
                    why = "the row does not exist"
            except Fatal as exc:
                refused, why = exc, exc.message
            if why:
                self._check_unchanged(rows, number, refused)
                if rows.records[number, IS_SAFE] and refused and is_foreign_key(refused):
                    refused = Fatal("MR-5025", refused.message)  # whatever the conflict policy
                if aside is not None and refused is not None and aside.takes(refused):
                    # fails if the server has rolled back more than the statement
                    self._connection.query("ROLLBACK TO SAVEPOINT millrace_row")
                    self._versions.restore()
                    aside.keep(number, f"{refused.code} {why}")
                    self.conflicts.append(REFUSED_KIND)
                    continue
                if refused is not None and refused.code != "MR-5010":
                    fix = self._fix_of_text(rows, number, refused) or refused.own_fix
                    fix = fix or self._fix_of_refusal(rows, number, refused)
                    raise self._named(rows, number, why, code=refused.code, fix=fix) from refused
                self.conflicts.append(conflict_kind(int(rows.records[number, OP]), refused))
                fix = self._fix_of_refusal(rows, number, refused) if refused else ""
                self._decide(rows, number, why, fix)
        self._versions.restore()
        self._restore_checks()

    def _check_unchanged(self, rows: Rows, number: int, refused: Fatal | None) -> None:
        """Retryable MR-5023 if the table was altered since planning. Checked once per target transaction."""
        if refused is not None and refused.code not in ("MR-5010", "MR-5019"):
            return
        target = self._plans.table_plan(int(rows.records[number, SLOT])).target
        compared = (target.database, target.table, is_foreign_key(refused))
        if compared in self._compared:
            return
        self._compared.add(compared)
        inventory, with_foreign = self._plans.inventory, compared[2]
        if has_changed(self._connection, inventory, target, with_foreign=with_foreign):
            what = f"{target.name} was altered on the target"
            raise Retryable("MR-5023", what, table=target.name)

    def _decide(self, rows: Rows, number: int, why: str, fix: str) -> None:
        slot = int(rows.records[number, SLOT])
        policy = self._conflict_rule.policy
        if policy is ConflictPolicy.OVERWRITE and not self._plans.table_plan(slot).identity:
            why = f"{why}; a table without a key has no row to overwrite"
            fix = _without_overwrite(self._conflict_rule.task, int(rows.records[number, SEQ]))
            policy = ConflictPolicy.STOP
        elif policy is ConflictPolicy.OVERWRITE and (kept := self._kept_values(slot)):
            why = f"{why}; REPLACE would remove the values of {kept}, which the view does not have"
            fix = _without_overwrite(self._conflict_rule.task, int(rows.records[number, SEQ]))
            policy = ConflictPolicy.STOP
        conflict = make_conflict(self._connection, self._plans, rows, number, why)
        if policy is ConflictPolicy.STOP:
            self.blocking = conflict
            raise self._named(rows, number, why, fix=fix)
        if policy is ConflictPolicy.OVERWRITE:
            self._set_foreign_key_checks(wanted=False)  # the next row sets it again
            self._overwrite(rows, number)
        self._versions.restore()
        store_conflict(
            self._connection,
            self._conflict_rule.task,
            # stored once for all records, when the mark moves; the schema under a view is not
            conflict if conflict.target_table else replace(conflict, schema_text=""),
            decision=str(policy),
            bytes_max=self._plans.inventory.packet_bytes_max,
        )

    def _kept_values(self, slot: int) -> str:
        """The columns that a view leaves to others and that REPLACE would change; "" if there are none."""
        table_plan = self._plans.table_plan(slot)
        is_lost = table_plan.is_viewed and not table_plan.on_duplicate
        kept = table_plan.unwritten if is_lost else []
        return ", ".join(column.name for column in kept)

    def _repeat(self, rows: Rows, number: int) -> None:
        """Write the record's row as safe mode does, with the cascade of a DELETE that keeps its checks."""
        if rows.records[number, OP] == OP_DELETE and self._checks_foreign_keys:
            self._set_foreign_key_checks(wanted=False)
            self._write_one(rows, Single.of(rows, number, "restore"))
            self._set_foreign_key_checks(wanted=True)
        self._overwrite(rows, number)

    def _overwrite(self, rows: Rows, number: int) -> None:
        """Write the record's row, whatever the target has."""
        op = int(rows.records[number, OP])
        if op == OP_UPDATE and self._plans.table_plan(int(rows.records[number, SLOT])).on_duplicate:
            self._write_one(rows, Single.of(rows, number, "move"))
            return
        if op != OP_CREATE:
            self._write_one(rows, Single.of(rows, number, "delete"))
        if op != OP_DELETE:
            self._write_one(rows, Single.of(rows, number, "replace"))

    def _named(
        self, rows: Rows, number: int, why: str, *, code: str = "MR-5010", fix: str = ""
    ) -> Fatal:
        slot, op = (int(rows.records[number, which]) for which in (SLOT, OP))
        table_plan = self._plans.table_plan(slot)
        table = table_plan.shown
        return Fatal(
            code,
            f"{OPS[op]} of a row of {table}: {why}",
            fix=fix,
            table=table,
            key=self._key_text(rows, number, table_plan),
            seq=rows.records[number, SEQ],
            gtid=rows.gtid(number),
        )

    def _fix_of_refusal(self, rows: Rows, number: int, refused: Fatal) -> str:
        if refused.code not in ("MR-5010", "MR-5011"):
            return ""
        target = self._plans.table_plan(int(rows.records[number, SLOT])).target
        return fix_of_refusal(target, refused.message, self._conflict_rule.task)

    def _fix_of_text(self, rows: Rows, number: int, refused: Fatal) -> str:
        """The fix if a column of the target has no place for 4-byte characters and the source's has; else empty.

        No binlog says whether `utf8` in a statement meant utf8mb4, which is a setting of MariaDB.
        """
        table_plan = self._plans.table_plan(int(rows.records[number, SLOT]))
        columns = table_plan.layout.table.columns
        names = [
            target.name
            for index, target in table_plan.columns
            if target.charset in _UTF8MB3
            and (text := columns[index].type.text) is not None
            and text.charset == "utf8mb4"
        ]
        if not names or refused.errno != WRONG_TEXT:
            return ""
        table = table_plan.target.name
        return (
            f"{', '.join(names)} of {table}: utf8mb4 on the source, utf8mb3"
            " on the target. Alter the column there to CHARACTER SET utf8mb4. If the source's statement says utf8,"
            " the target's `old_mode` (MariaDB) must be the source's: set it globally. Then `millrace task resume"
            f" {self._conflict_rule.task}`."
        )

    def _key_text(self, rows: Rows, number: int, table_plan: TablePlan) -> str:
        image = images.BEFORE if rows.records[number, OP] != OP_CREATE else images.AFTER
        shape = make_shape(table_plan.layout, compared(image, table_plan.identity))
        if not len(shape):
            return "(no key)"
        text = rows.text_of(Single.of(rows, number).firsts, shape)
        return text.decode(errors="replace")[:_KEY_TEXT_MAX]


def not_generated_alike(
    table_plan: TablePlan, columns: Sequence[CatalogColumn], task: str
) -> Fatal:
    """MR-5017 for these generated columns."""
    name = table_plan.shown
    names = ", ".join(column.name for column in columns)
    why = f"what the target generates for {names} of {name} is not the record's value"
    fix = ""
    if any(column.by_session for column in columns):
        why += "; its expression may depend on the session's time_zone, sql_mode or lc_time_names"
        fix = fix_of_columns(table_plan.target, columns, task)
    return Fatal("MR-5017", why, fix=fix, table=name)


def _single(rows: Rows, change: Ints) -> Single:
    return Single(
        int(change[PLACE]),
        rows.firsts(change[BEFORE : BEFORE + 1], change[AFTER : AFTER + 1]),
        OPS[int(change[CHANGE_OP])],
    )


def _without_overwrite(task: str, seq: int) -> str:
    """The fix of MR-5010 where `overwrite` does not help."""
    return (
        f"`millrace conflict show {task} {seq}` prints the change. Correct the row, or leave the change out with"
        f" `millrace conflict discard {task} {seq}`, or set `conflict: skip` for the task. Then `millrace task resume"
        f" {task}`."
    )


def split_sequences(
    plans: TablePlans, rows: Rows, numbers: RecordNumbers
) -> tuple[RecordNumbers, list[int]]:
    """The records of tables, and the last record of each sequence, in seq order."""
    slots = rows.slots(numbers)
    last: dict[tuple[str, str], int] = {}
    of_tables = np.ones(len(numbers), np.bool_)
    for slot in slots_of(slots) if len(numbers) else ():
        target = plans.table_plan(slot).target
        if target.is_sequence:
            is_of_sequence = slots == slot
            of_tables &= ~is_of_sequence
            greatest = max(last.get(target.key, 0), int(numbers[is_of_sequence][-1]))
            last[target.key] = greatest
    return RecordNumbers(numbers[of_tables]), sorted(last.values())
