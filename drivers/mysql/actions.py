"""The effect of a foreign key on child rows if a parent row is deleted or its key changes. Pure."""

import re
from dataclasses import dataclass
from enum import StrEnum

from millrace.schemas.sql.overlaps import definition_lines

_RULE = re.compile(r"ON (DELETE|UPDATE) (CASCADE|SET NULL|SET DEFAULT|RESTRICT|NO ACTION)")


class Action(StrEnum):
    """The effect on the child rows. RESTRICT counts as NO_ACTION: neither changes a row."""

    NO_ACTION = "NO ACTION"
    CASCADE = "CASCADE"
    SET_NULL = "SET NULL"
    UNKNOWN = "an unknown action"

    @classmethod
    def of(cls, rule: str) -> "Action":
        """The action of a rule; "" if none is shown."""
        if rule in ("", "RESTRICT"):
            return cls.NO_ACTION
        return cls(rule) if rule in set(cls) else cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class Actions:
    """The actions of one foreign key."""

    on_delete: Action = Action.NO_ACTION
    on_update: Action = Action.NO_ACTION

    @classmethod
    def of(cls, delete_rule: str, update_rule: str) -> "Actions":
        """From ``information_schema.REFERENTIAL_CONSTRAINTS``."""
        return cls(Action.of(delete_rule), Action.of(update_rule))

    @classmethod
    def shown(cls, text: str, opening: str) -> "Actions":
        """From SHOW CREATE TABLE. ``opening``: how the line of the constraint begins. UNKNOWN without that line."""
        lines = definition_lines(text)
        rules = [line.rpartition(")")[2] for line in lines if line.startswith(opening)]
        if not rules:
            return cls(Action.UNKNOWN, Action.UNKNOWN)
        found = dict(_RULE.findall(rules[0]))
        return cls.of(found.get("DELETE", ""), found.get("UPDATE", ""))


NO_ACTIONS = Actions()
