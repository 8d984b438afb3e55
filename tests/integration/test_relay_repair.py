"""A damaged closed relay file repairs itself: its part is read from a member again."""

from pathlib import Path

from millrace.deploy.servers import DatabaseSet
from millrace.producer.source.set_stream import Site
from millrace.producer.source.set_streams import Upstreams
from millrace.schemas.documents import (
    Account,
    SecretPlace,
    SecretReference,
    SetDocument,
    TableFilter,
)
from millrace.schemas.progress import Progress
from tests.kit.capture.rig import MemoryCapture
from tests.kit.relay.relay import UNVERIFIED, member_of, position_of
from tests.kit.waiting import eventually


def test_damaged_relay_file_is_read_from_the_member_again(
    source_set: DatabaseSet, tmp_path: Path
) -> None:
    """A bit flips in a closed file that a late task needs: the file is set aside, and no row is lost or repeated."""
    secret = tmp_path / "password"
    secret.write_text(source_set.password)
    document = SetDocument(
        name="shared",
        members=(member_of(source_set.primary),),
        account=Account(source_set.user, SecretReference(SecretPlace.FILE, str(secret))),
        tls=UNVERIFIED,
    )
    start = Progress(position_of(source_set.primary), None, 0)
    source_set.execute("CREATE DATABASE flipped")
    source_set.execute("CREATE TABLE flipped.t (id INT PRIMARY KEY)")
    for number in range(1, 31):
        source_set.execute(f"INSERT INTO flipped.t VALUES ({number})")
        if number % 10 == 0:
            source_set.execute("FLUSH BINARY LOGS")
    streams = Upstreams(Site(root=tmp_path / "relay"))
    tables = TableFilter(include=("flipped.*",))
    with MemoryCapture(streams, document, tables, start) as first:
        eventually(lambda: len(first.rows) == 30, what="all rows")
        damaged = first.stream.relay.list_files()[-3]
    path = tmp_path / "relay" / "shared" / str(damaged[0]) / damaged[1]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with MemoryCapture(streams, document, tables, start) as late:
        eventually(lambda: len(late.rows) == 30 or late.error is not None, what="all rows again")
        assert late.error is None
    assert [dict(row.change.after or {})["id"] for row in late.rows] == list(range(1, 31))
    assert [error.code for error in late.errors][:1] == ["MR-2004"]
    assert path.with_name(f"{path.name}.damaged").read_bytes() == content
    source_set.execute("DROP DATABASE flipped")
