"""SCRAM against the example of RFC 7677, and servers that do not keep to it."""

import pytest

from shipper_plugins.kafka.scram import MOST_ROUNDS, Scram

_CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"


def scram() -> Scram:
    return Scram("SCRAM-SHA-256", "user", "pencil", nonce="rOprNGfwEbeRWgbNEkqO")


def test_the_conversation_is_that_of_the_standard() -> None:
    client = scram()
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert client.final(_CHALLENGE) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    client.check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_a_server_that_does_not_know_the_password_is_refused() -> None:
    client = scram()
    client.final(_CHALLENGE)
    for end in (b"v=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", b"v=", b"", b"v=%%", b"\xff"):
        with pytest.raises(ValueError):
            client.check(end)


def test_a_challenge_that_cannot_be_is_refused() -> None:
    for challenge in [
        _CHALLENGE.replace(b"i=4096", b"i=1"),
        _CHALLENGE.replace(b"i=4096", b"i=%d" % (MOST_ROUNDS + 1)),
        _CHALLENGE.replace(b"i=4096", b"i=many"),
        _CHALLENGE.replace(b"r=rOpr", b"r=other"),
        _CHALLENGE.replace(b"s=W22", b"s=*"),
        b"",
        b"\xff",
    ]:
        with pytest.raises(ValueError):
            scram().final(challenge)


@pytest.mark.parametrize("rounds", [b"hunter2", "\u0664\u0660\u0669\u0666".encode(), b"-4096", b"9" * 5000])
def test_a_number_of_rounds_that_is_none_is_not_quoted(rounds: bytes) -> None:
    with pytest.raises(ValueError, match="its message is malformed"):
        scram().final(_CHALLENGE.replace(b"4096", rounds))


def test_a_name_is_escaped() -> None:
    assert Scram("SCRAM-SHA-512", "a=b,c", "p", nonce="n").first() == b"n,,n=a=3Db=2Cc,r=n"
