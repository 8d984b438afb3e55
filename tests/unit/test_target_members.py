"""Which member of a target set is written to, based on the answers of its members."""

from dataclasses import dataclass

import pytest

from millrace.drivers.mysql import primary
from millrace.drivers.mysql.connection import Endpoint
from millrace.drivers.mysql.primary import primary_member
from millrace.errors import Retryable
from millrace.schemas.documents import Account, Member, SecretReference, SetDocument, Tls
from millrace.schemas.gtid import Flavour
from millrace.schemas.server_version import ServerVersion

PRIMARY, AWAY = "primary", "away"


@dataclass
class _Session:
    """A session to the primary, to a replica of the named member, or to a closed member without a source ("")."""

    says: str
    flavour: Flavour

    @property
    def version(self) -> ServerVersion:
        return ServerVersion.parse("11.4.5-MariaDB" if self.flavour is Flavour.MARIADB else "9.7.0")

    def query(self, sql: str) -> list[tuple[object, ...]]:
        assert sql == "SELECT @@global.read_only"
        return [(int(self.says != PRIMARY),)]

    def named(self, sql: str) -> list[dict[str, object]]:
        if self.says in (PRIMARY, ""):
            return []
        if self.flavour is Flavour.MARIADB:
            assert sql == "SHOW ALL SLAVES STATUS"
            return [{"Master_Host": self.says, "Master_Port": 3306}]
        assert sql == "SHOW REPLICA STATUS"
        return [{"Source_Host": self.says, "Source_Port": 3306}]

    def close(self) -> None:
        """Do nothing: nothing is open."""


def _chosen(
    patch: pytest.MonkeyPatch, says: list[str], *, flavour: Flavour, for_writing: bool = True
) -> str:
    """Return the host, or the code of the refusal. Members are m0, m1, … with these answers."""

    def connect(endpoint: Endpoint) -> _Session:
        found = says[int(endpoint.host[1:])]
        if found == AWAY:
            raise Retryable("MR-5001", "timed out")
        return _Session(found, flavour)

    reference = SecretReference.parse("env:MILLRACE_TEST_MEMBERS")
    assert reference is not None
    patch.setenv("MILLRACE_TEST_MEMBERS", "secret")
    patch.setattr(primary, "connect", connect)
    document = SetDocument(
        name="warehouse",
        members=tuple(Member(f"m{number}", 3306) for number in range(len(says))),
        account=Account("millrace", reference),
        tls=Tls(),
    )
    try:
        return primary_member(document, for_writing=for_writing).host
    except Retryable as exc:
        return exc.code


@pytest.mark.parametrize("flavour", list(Flavour))
@pytest.mark.parametrize(
    ("says", "chosen"),
    [
        ([PRIMARY], "m0"),
        ([PRIMARY, "m0"], "m0"),
        ([PRIMARY, AWAY], "MR-5016"),  # either may be the deposed one
        ([PRIMARY, "m0", AWAY], "m0"),
        ([PRIMARY, "", AWAY], "m0"),  # a replica whose replication is not set up, or not shown
        ([PRIMARY, "m2", AWAY], "MR-5016"),  # m2 was promoted, m1 follows it
        ([PRIMARY, "elsewhere", AWAY], "m0"),
        ([PRIMARY, AWAY, AWAY], "MR-5016"),
        ([PRIMARY, "m0", AWAY, AWAY], "MR-5016"),  # half of them is not a majority
        ([PRIMARY, "m0", "m0", AWAY, AWAY], "m0"),
        ([PRIMARY, PRIMARY, AWAY], "MR-5003"),
        (["m1", "", AWAY], "MR-5003"),
        ([AWAY, AWAY], "MR-5001"),
    ],
)
def test_writable_member_is_primary_only_with_a_majority(
    monkeypatch: pytest.MonkeyPatch, says: list[str], chosen: str, flavour: Flavour
) -> None:
    """A deposed primary behind a partition answers alone, or with a replica that already follows another."""
    found = _chosen(monkeypatch, says, flavour=flavour)
    if chosen == "MR-5016":
        assert found == "MR-5016"
    assert found == chosen


def test_reader_accepts_a_single_responding_primary(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``millrace compare`` writes nothing."""
    says = [PRIMARY, AWAY, AWAY]
    assert _chosen(monkeypatch, says, flavour=Flavour.MYSQL, for_writing=False) == "m0"
