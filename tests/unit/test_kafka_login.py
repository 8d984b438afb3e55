"""The SCRAM dialogue gives the messages of the RFC, and a broker without the password is found out."""

import pytest

from millrace.drivers.kafka.login import scram

# RFC 7677, section 3
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = f"r={NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SIGNATURE = "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_scram_gives_the_messages_of_the_rfc() -> None:
    """The example of RFC 7677."""
    dialogue = scram("sha256", "user", "pencil", nonce=NONCE)
    assert next(dialogue) == f"n,,n=user,r={NONCE}".encode()
    final = dialogue.send(SERVER_FIRST.encode())
    assert final == f"c=biws,r={NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p={PROOF}".encode()
    with pytest.raises(StopIteration):
        dialogue.send(f"v={SIGNATURE}".encode())


@pytest.mark.parametrize(
    "answers",
    [
        ["r=another,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"],
        [SERVER_FIRST.replace("4096", "999999999")],
        [SERVER_FIRST.replace("i=4096", "i=0")],
        ["e=unknown-user"],
        [SERVER_FIRST, "v=AAAA"],
        [SERVER_FIRST, "e=other-error"],
    ],
)
def test_broker_without_the_password_is_found_out(answers: list[str]) -> None:
    """Another nonce, absurd rounds, an error, a wrong signature."""
    dialogue = scram("sha256", "user", "pencil", nonce=NONCE)
    next(dialogue)
    for answer in answers[:-1]:
        dialogue.send(answer.encode())
    with pytest.raises(ValueError):
        dialogue.send(answers[-1].encode())
