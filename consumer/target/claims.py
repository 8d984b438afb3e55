"""Claims of the shares of a spread turn: each share is executed once, and all executions plan alike.

    spread      task, run, place: plan_key      one row per share of a turn, made before the share writes a row

A second execution of one share is refused by the primary key. Of two shares, the one that commits its claim later reads
the other's, so at least one of them sees that their plan keys differ. It then writes nothing.
Not done here: the plan key (``consumer.tables.plan_key``).
"""

from millrace.consumer.target.progress import DATABASE, Owner, check_fence
from millrace.drivers.mysql.connection import MySqlSession
from millrace.errors import Fenced
from millrace.faults import fault_point, register

AFTER_CLAIM = register("spread.after_claim")


def claim_share(connection: MySqlSession, owner: Owner, place: int, plan_key: bytes) -> bool:
    """Claim a share; whether all claims so far have this plan key. Fenced MR-5020 if the share was claimed before."""
    check_fence(connection, owner)
    claim = connection.with_arguments(
        f"INSERT IGNORE INTO {DATABASE}.spread VALUES (%s, %s, %s, _binary %s)",
        (owner.task, owner.run, place, plan_key),
    )
    if connection.run(claim) != 1:
        connection.rollback()
        what = f"part {place} of run {owner.run} was begun before"
        raise Fenced("MR-5020", what, task=owner.task)
    connection.commit()
    fault_point(AFTER_CLAIM)
    found = connection.query(
        f"SELECT plan_key FROM {DATABASE}.spread WHERE task = %s AND run = %s",
        (owner.task, owner.run),
    )
    connection.rollback()
    return all(key == plan_key for (key,) in found)


def forget_claims(connection: MySqlSession, owner: Owner) -> None:
    """Delete the claims of earlier runs, which the fence refuses now. Does not commit."""
    connection.query(
        f"DELETE FROM {DATABASE}.spread WHERE task = %s AND run < %s", (owner.task, owner.run)
    )
