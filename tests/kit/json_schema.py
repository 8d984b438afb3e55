"""The part of JSON Schema that the schemas of documents use."""

import re

_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
}


def accepts(schema: object, value: object) -> bool:
    """Whether the schema accepts the value; an unknown keyword fails the test."""
    assert isinstance(schema, dict)
    return all(_holds(keyword, wanted, schema, value) for keyword, wanted in schema.items())


def _holds(keyword: str, wanted: object, schema: dict[str, object], value: object) -> bool:
    match keyword, wanted, value:
        case (("$schema" | "title" | "description" | "default"), _, _):
            return True
        case "type", "boolean", _:
            return isinstance(value, bool)
        case "type", str(), _:
            return isinstance(value, _TYPES[wanted]) and not isinstance(value, bool)
        case "const", _, _:
            return value == wanted
        case "enum", list(), _:
            return value in wanted
        case "oneOf", list(), _:
            return sum(accepts(one, value) for one in wanted) == 1
        case "pattern", str(), str():
            return re.search(wanted, value) is not None
        case (("minLength" | "minItems"), int(), str() | list()):
            return len(value) >= wanted
        case (("maxLength" | "maxItems"), int(), str() | list()):
            return len(value) <= wanted
        case "minimum", int() | float(), int() | float():
            return value >= wanted
        case "maximum", int() | float(), int() | float():
            return value <= wanted
        case "items", dict(), list():
            return all(accepts(wanted, item) for item in value)
        case "required", list(), dict():
            return all(name in value for name in wanted)
        case "properties", dict(), dict():
            return all(accepts(wanted[name], value[name]) for name in wanted.keys() & value.keys())
        case "additionalProperties", False, dict():
            known = schema["properties"]
            return isinstance(known, dict) and value.keys() <= known.keys()
        case "additionalProperties", dict(), dict():
            assert "properties" not in schema, "the names of the others are not known here"
            return all(accepts(wanted, item) for item in value.values())
        case "propertyNames", dict(), dict():
            return all(accepts(wanted, name) for name in value)
        case "minProperties", int(), dict():
            return len(value) >= wanted
        case "maxProperties", int(), dict():
            return len(value) <= wanted
        case _:
            assert keyword in _OF_ANOTHER_TYPE, f"{keyword} is not known here"
            return False


_OF_ANOTHER_TYPE = {
    *("pattern", "minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum"),
    *("items", "required", "properties", "additionalProperties"),
    *("propertyNames", "minProperties", "maxProperties"),
}
