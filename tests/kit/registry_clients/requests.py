"""The requests that each client makes of a registry to decode a value, and when it is asked what else it can ask.

``tests/chaos/test_registry_clients.py`` compares them with what the clients do. A test of `make test` repeats them, so
that it fails before a client would. TOPIC is the topic's name, SUBJECT its ``TOPIC-value``, ID the ID of the value.
"""

from collections.abc import Mapping, Sequence

_SERDES = {
    f"Java: Apicurio's serde {major}, {kind}": (
        f"GET /apis/registry/v{major}/ids/{kind}s/ID{option}",
        f"GET /apis/registry/v{major}/ids/{kind}s/ID/references",
    )
    for major, kind, option in (
        (2, "contentId", ""),
        (2, "globalId", "?dereference=false"),
        (3, "contentId", ""),
        (3, "globalId", ""),
    )
}

REQUESTS: Mapping[str, Sequence[str]] = {
    "Python: confluent-kafka": (
        # answered by 404: the subject is then SUBJECT
        "GET /associations/resources/-/TOPIC?resourceType=topic&associationType=value",
        "GET /schemas/ids/ID?subject=SUBJECT",
        "GET /schemas/ids/ID?subject=SUBJECT",
        "GET /subjects/SUBJECT/versions/latest",
        "GET /subjects/SUBJECT/versions/1?deleted=false",
        "GET /subjects?deleted=false&deleted_only=false&offset=0&limit=-1",
        "GET /subjects/SUBJECT/versions?deleted=false&deleted_only=false&offset=0&limit=-1",
        "POST /compatibility/subjects/SUBJECT/versions/latest?normalize=False&verbose=False",
        "GET /config/SUBJECT",
    ),
    "Node: @kafkajs/confluent-schema-registry": (
        "GET /schemas/ids/ID",
        "GET /subjects/SUBJECT/versions/latest",
        "GET /subjects/SUBJECT/versions/1",
    ),
    "Go: franz-go sr": (
        "GET /schemas/ids/ID",
        "GET /subjects/SUBJECT/versions/latest",
        "GET /subjects/SUBJECT/versions/1",
        "GET /subjects",
        "GET /subjects/SUBJECT/versions",
        "GET /schemas/ids/ID/versions",
        "GET /subjects/SUBJECT/versions/1",
        "POST /subjects/SUBJECT",
        "POST /compatibility/subjects/SUBJECT/versions/latest",
        "GET /config/SUBJECT",
        "GET /schemas/types",
    ),
    "Rust: schema_registry_converter": (
        "GET /schemas/ids/ID?deleted=true",
        "GET /schemas/ids/ID?deleted=true",
        "GET /subjects/SUBJECT/versions/latest",
        "GET /subjects",
        "GET /subjects/SUBJECT/versions",
    ),
    **_SERDES,
    "Kafka Connect: Apicurio's AvroConverter 2": (
        "GET /apis/registry/v2/ids/contentIds/ID",
        "GET /apis/registry/v2/ids/contentIds/ID/references",
    ),
}
"""By the names of clients, in their order."""
