"""The procedure ``millrace.wait_for_gtid`` on the target: a reader waits until a task has applied a GTID set.

    CALL millrace.wait_for_gtid('shop-to-warehouse', '0-1-23', 10)      one row, ``reached``: 1, or 0 after 10 s

It compares the set with ``progress.gtid_set``, which the task commits with the last rows that it covers, as
``consistent_gtid`` in ``millrace status --json``. The set has the form of the task's source, not of the target:

    mysql      each interval is in one interval of the progress, with the same uuid and tag
    mariadb    the progress has at least the sequence number of each domain; numbers alone prove no history. A domain
               that appears twice is refused

An empty set is refused: a variable of the reader was not set.

It is a procedure because a function runs inside one statement and its snapshot. Each poll must see new commits:

    no transaction is open     each poll is a separate transaction, READ COMMITTED
    one is open                it may have a snapshot, so the session's level must be READ COMMITTED or lower; the
                               transaction stays open

Error 1568 of SET TRANSACTION shows that a transaction is open. A transaction that was begun under a level other than
its session's is not noticed: the procedure then returns 0. It takes no lock. SQL SECURITY DEFINER: a reader needs only
EXECUTE. Errors are SQLSTATE 45000; a text has at most 128 characters (MySQL), with the code of ``millrace explain``.

A task makes the procedure at its start, and replaces one of another version, which its COMMENT shows: MySQL can only
drop and create it. If the task is killed in between, the next start of a task creates it. A DROP also drops what was
granted on the procedure alone, so readers get EXECUTE on the database. A start that may not create it, or waits for a
reader who uses the old one, logs MR-5026 and continues.

Its definer is the account of the task that made it. If that account was dropped or lost its rights, readers get an
error (1449, 1142 or 1370). So each start calls the procedure as a reader does, and makes it again without an answer.
SQL SECURITY INVOKER would need no definer, but readers would need SELECT on ``progress``. The definer's existence alone
does not show its rights, and only an account that may read ``mysql.user`` sees it.
"""

from hashlib import blake2b

from millrace.consumer.target.progress import DATABASE
from millrace.drivers.mysql.connection import LOCK_WAIT_S, MySqlSession
from millrace.drivers.mysql.errors import SIGNALED
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.faults import fault_point, register
from millrace.log import get_logger

NAME = "wait_for_gtid"
POLL_S = 0.05
REPLACE_WAIT_S = 2
PROCEDURE_DROPPED = register("apply.procedure_dropped")

_log = get_logger("apply.wait_procedure")

_TEXT = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
_PARAMETERS = (
    f"IN task_name VARCHAR(190) {_TEXT}, IN wanted LONGTEXT {_TEXT}, IN timeout_s DECIMAL(12,3)"
)
_BODY = f"""
BEGIN
  DECLARE is_open, is_reached, is_there BOOLEAN DEFAULT FALSE;
  DECLARE waited_s DECIMAL(12,3) DEFAULT 0;
  DECLARE pause_s DECIMAL(12,3);
  DECLARE kind VARCHAR(16) {_TEXT};
  DECLARE problem VARCHAR(128) {_TEXT};
  DECLARE tag, other_tag VARCHAR(64) {_TEXT};
  DECLARE reached, compared, items, item, head, heads, parts, part, others, other LONGTEXT {_TEXT};
  DECLARE first_number, last_number DECIMAL(20,0);
  SET wanted = LOWER(REGEXP_REPLACE(wanted, '[[:space:]]+', ''));
  IF task_name IS NULL OR wanted IS NULL OR timeout_s IS NULL THEN
    SET problem = 'MR-6001 {NAME} needs a task, a GTID set and a timeout in seconds; none may be NULL';
  ELSEIF REPLACE(wanted, ',', '') = '' THEN
    SET problem = 'MR-6001 the GTID set is empty; give {NAME} the GTIDs that the task shall have applied';
  END IF;
  poll: LOOP
    IF problem IS NOT NULL THEN
      SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = problem;
    END IF;
    IF NOT is_open THEN
      BEGIN
        DECLARE EXIT HANDLER FOR 1568 SET is_open = TRUE;
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
      END;
    END IF;
    IF is_open AND @@transaction_isolation NOT IN ('READ-COMMITTED', 'READ-UNCOMMITTED') THEN
      SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT =
        '{NAME}: an open transaction that is not READ COMMITTED would not see new rows; COMMIT first';
    END IF;
    SET reached = NULL;
    BEGIN
      DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
      SELECT p.gtid_set, p.flavour INTO reached, kind
        FROM {DATABASE}.progress p WHERE p.task = task_name;
    END;
    IF NOT is_open THEN
      COMMIT;
    END IF;
    IF reached IS NULL THEN
      SET problem = CONCAT('MR-4104 Millrace has no task ', LEFT(task_name, 40),
        ' on this server: correct the name or the server');
      ITERATE poll;
    END IF;
    IF NOT reached <=> compared THEN
      SET compared = reached, is_reached = TRUE, items = wanted, heads = '';
      SET kind = IF(kind <> '', kind, IF(LOCATE(':', wanted), 'mysql', 'mariadb'));
    END IF;
    WHILE items <> '' DO
      SET item = SUBSTRING_INDEX(items, ',', 1), items = SUBSTRING(items, CHAR_LENGTH(item) + 2);
      IF item = '' THEN
        SET part = '1';
      ELSEIF kind = 'mariadb' AND item REGEXP '^[0-9]{{1,10}}-[0-9]{{1,10}}-[0-9]{{1,20}}$' THEN
        SET head = CONCAT(',', CAST(SUBSTRING_INDEX(item, '-', 1) AS DECIMAL(20,0)), '-');
        SET others = CONCAT(',', reached), last_number = SUBSTRING_INDEX(item, '-', -1);
        SET other = SUBSTRING_INDEX(SUBSTRING_INDEX(others, head, -1), ',', 1);
        IF NOT LOCATE(head, others)
            OR CAST(SUBSTRING_INDEX(other, '-', -1) AS DECIMAL(20,0)) < last_number THEN
          SET is_reached = FALSE;
        END IF;
        SET part = IF(LOCATE(head, heads), 'a domain twice', part), heads = CONCAT(heads, head);
      ELSEIF kind = 'mysql' AND item REGEXP '^[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}:' THEN
        SET head = CONCAT(',', SUBSTRING_INDEX(item, ':', 1), ':'), tag = '', part = 'tag';
        SET parts = SUBSTRING(item, CHAR_LENGTH(head));
        WHILE parts <> '' DO
          SET part = SUBSTRING_INDEX(parts, ':', 1), parts = SUBSTRING(parts, CHAR_LENGTH(part) + 2);
          IF part REGEXP '^[a-z_][a-z0-9_]{{0,31}}$' THEN
            SET tag = part;
          ELSEIF part REGEXP '^[0-9]{{1,19}}(-[0-9]{{1,19}})?$' THEN
            SET first_number = SUBSTRING_INDEX(part, '-', 1), last_number = SUBSTRING_INDEX(part, '-', -1);
            IF first_number = 0 OR last_number < first_number THEN
              SET part = 'no range', parts = '';
            END IF;
            SET others = CONCAT(',', reached), other_tag = '', is_there = FALSE;
            SET others = IF(LOCATE(head, others),
              SUBSTRING_INDEX(SUBSTRING_INDEX(others, head, -1), ',', 1), '');
            WHILE others <> '' AND NOT is_there DO
              SET other = SUBSTRING_INDEX(others, ':', 1), others = SUBSTRING(others, CHAR_LENGTH(other) + 2);
              IF other REGEXP '^[a-z_]' THEN
                SET other_tag = other;
              ELSEIF other_tag = tag THEN
                SET is_there = CAST(SUBSTRING_INDEX(other, '-', 1) AS DECIMAL(20,0)) <= first_number
                  AND CAST(SUBSTRING_INDEX(other, '-', -1) AS DECIMAL(20,0)) >= last_number;
              END IF;
            END WHILE;
            SET is_reached = is_reached AND is_there;
          ELSE
            SET part = 'neither', parts = '';
          END IF;
        END WHILE;
      ELSE
        SET part = 'another form';
      END IF;
      IF part NOT REGEXP '^[0-9]' THEN
        SET problem = LEFT(CONCAT('MR-6001 ', QUOTE(LEFT(item, 40)),
          IF(part = 'a domain twice', ' repeats its domain in this GTID set of ', ' is no GTID set of '), kind,
          '; copy @@', IF(kind = 'mysql', 'gtid_executed', 'gtid_binlog_pos')), 128), items = '';
      END IF;
    END WHILE;
    IF problem IS NOT NULL THEN
      ITERATE poll;
    END IF;
    IF is_reached OR waited_s >= timeout_s THEN
      SELECT is_reached AS reached;
      LEAVE poll;
    END IF;
    SET pause_s = LEAST({POLL_S}, timeout_s - waited_s);
    SET waited_s = waited_s + pause_s;
    DO SLEEP(pause_s);
  END LOOP;
END"""
COMMENT = f"Millrace {blake2b((_PARAMETERS + _BODY).encode(), digest_size=8).hexdigest()}"


def create_procedure(session: MySqlSession) -> None:
    """Make the procedure if it is missing, of another version or unusable. Logs MR-5026 if that is not possible."""
    try:
        if not _answers(session):
            session.query(f"SET SESSION lock_wait_timeout = {REPLACE_WAIT_S}")
            _create(session)
            session.query(f"SET SESSION lock_wait_timeout = {LOCK_WAIT_S}")
    except MillraceError as exc:
        if not session.is_open:
            raise
        if not _answers(session):  # another starting task made it at the same time
            _log.warning("readers can't wait", error=Retryable("MR-5026", exc.message))
    session.commit()


def _answers(session: MySqlSession) -> bool:
    """Whether it is of this version, and a call gets as far as to look for a task."""
    if _comment(session) != COMMENT:
        return False
    try:
        session.query(f"CALL {DATABASE}.{NAME}('', '0-1-1', 0)")  # no task has an empty name
    except Fatal as exc:
        return exc.errno == SIGNALED
    return True


def _create(session: MySqlSession) -> None:
    isolation = session.version.variable("transaction_isolation")
    body = _BODY.replace("@@transaction_isolation", f"@@{isolation}")
    session.query(f"DROP PROCEDURE IF EXISTS {DATABASE}.{NAME}")
    fault_point(PROCEDURE_DROPPED)
    session.query(
        f"CREATE PROCEDURE {DATABASE}.{NAME} ({_PARAMETERS})"
        f" COMMENT '{COMMENT}' READS SQL DATA SQL SECURITY DEFINER {body}"
    )


def _comment(session: MySqlSession) -> str:
    found = session.query(
        "SELECT ROUTINE_COMMENT FROM information_schema.ROUTINES"
        " WHERE ROUTINE_SCHEMA = %s AND ROUTINE_NAME = %s",
        (DATABASE, NAME),
    )
    return str(found[0][0]) if found else ""
