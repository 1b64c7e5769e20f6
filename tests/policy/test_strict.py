import pytest

from shipper.policy.strict import LARGEST, read_yaml


def test_a_text_becomes_plain_values() -> None:
    assert read_yaml(b"name: web-1\nports: [80, 443]\nup: no\nload: 0.5\nnote: ~\n") == {
        "name": "web-1",
        "ports": [80, 443],
        "up": "no",
        "load": 0.5,
        "note": None,
    }


def test_an_error_names_the_line_and_does_not_quote_it() -> None:
    for text, error in [
        (b"a: 1\nb: &x [secret, secret]\nc: [*x, *x]\n", "line 2, column 4: an anchor is refused"),
        (b"a: 1\na: secret\n", "line 2, column 1: this key is written twice"),
        (b"a: !!python/object:os.system secret\n", "line 1, column 4: a tag is refused"),
        (b"a: [secret\n", "line "),
        (b"\xff", "the text is not UTF-8"),
        (b"[" * 100, "deeper than 32"),
        (b"#" * (LARGEST + 1), "larger than 1MiB"),
    ]:
        with pytest.raises(ValueError, match=error.replace("(", ".")) as raised:
            read_yaml(text)
        assert "secret" not in str(raised.value)
