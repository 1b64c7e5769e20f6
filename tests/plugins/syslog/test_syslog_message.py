"""Syslog messages become fields: RFC 5424, RFC 3164, and what goes by its name."""

import time
from datetime import UTC, datetime

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shipper_plugins.syslog.message import FACILITIES, SEVERITIES, UNPARSED, Reading
from shipper_plugins.syslog.time import zone_of

NOW = datetime(2026, 5, 17, 12, 0, tzinfo=UTC)
RECEIVED = "2026-05-17T12:00:00.000Z"
NAMES = st.from_regex(r"[!-~]{1,30}", fullmatch=True).filter(lambda name: name != "-")
KEYS = st.from_regex(r"[a-zA-Z0-9@._-]{1,20}", fullmatch=True)
VALUES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\n\ufeff"), max_size=20)


def event(body, **options):
    return Reading(**{"zone": UTC} | options).event(body, NOW)


def said(body, **options):
    """The fields beside priority, facility and severity, flat; and the text."""
    read = event(body, **options)
    syslog = {k: v for k, v in read["log"]["syslog"].items() if k not in ("priority", "facility", "severity")}
    return read["message"], syslog


@given(
    st.binary(max_size=120)
    | st.text('<>1[]"\\= -:TZMay 0234:%*.abc\ufeff', max_size=80).map(lambda t: b"<13>" + t.encode())
)
@example(b"<13>1 2026-05-17T12:00:00+99:99 - - - - -")
@example(b"\xef\xbb\xbf")
@example(b"<13>")
def test_any_bytes_give_an_event_that_json_can_hold_or_have_nothing_in_them(body):
    read = event(body, keeps_original=True)
    if read is None:
        assert not body.strip(b"\r\n\0")
        return
    assert orjson.loads(orjson.dumps(read)) == read
    assert isinstance(read["message"], str)
    assert isinstance(read["@timestamp"], str)


@given(st.binary(max_size=60), st.sampled_from(["utf-8", "latin-1", "cp1252", "koi8-r", "shift_jis", "gb18030", "hz"]))
def test_any_bytes_in_any_encoding_give_text_that_is_unicode(body, encoding):
    read = Reading(encoding=encoding).event(b"<13>x: " + body, NOW, is_cut=True)
    orjson.dumps(read)


@given(st.integers(0, 191))
def test_a_priority_is_a_facility_and_a_severity(number):
    syslog = event(b"<%d>x" % number)["log"]["syslog"]
    assert syslog["priority"] == number == syslog["facility"]["code"] * 8 + syslog["severity"]["code"]
    assert syslog["facility"]["name"] == FACILITIES[number // 8]
    assert syslog["severity"]["name"] == SEVERITIES[number % 8]


# -- RFC 5424 ----------------------------------------------------------------------------------------------------------


def quoted(value):
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("]", "\\]")


def element(id, params):
    return f"[{id}{''.join(f' {key}={chr(34)}{quoted(value)}{chr(34)}' for key, value in params.items())}]"


@given(
    st.tuples(NAMES, NAMES, NAMES, NAMES),
    st.dictionaries(KEYS, st.dictionaries(KEYS, VALUES, max_size=3), max_size=3),
    VALUES,
)
def test_what_is_written_by_rfc_5424_is_read_again(names, data, text):
    elements = "".join(element(id, params) for id, params in data.items())
    message, syslog = said(f"<13>1 2026-01-02T03:04:05Z {' '.join(names)} {elements or '-'} {text}".encode())

    hostname, appname, procid, msgid = names
    expected = {"version": "1", "hostname": hostname, "appname": appname, "procid": procid, "msgid": msgid}
    assert (message, syslog) == (text, expected | ({"structured_data": data} if data else {}))


def test_every_field_of_rfc_5424_has_its_place():
    read = event(
        b"<165>1 2003-10-11T22:14:15.003Z web-1 evntslog 8710 ID47 "
        b'[exampleSDID@32473 iut="3" ip="a" ip="b"][other@1] \xef\xbb\xbfAn event'
    )
    assert read == {
        "@timestamp": "2003-10-11T22:14:15.003Z",
        "message": "An event",
        "host": {"name": "web-1"},
        "process": {"name": "evntslog", "pid": 8710},
        "log": {
            "syslog": {
                "priority": 165,
                "facility": {"code": 20, "name": "local4"},
                "severity": {"code": 5, "name": "Notice"},
                "version": "1",
                "hostname": "web-1",
                "appname": "evntslog",
                "procid": "8710",
                "msgid": "ID47",
                "structured_data": {"exampleSDID@32473": {"iut": "3", "ip": ["a", "b"]}, "other@1": {}},
            }
        },
    }


@pytest.mark.parametrize("end", [b"", b" "])
def test_nil_values_are_no_fields(end):
    read = event(b"<13>1 - - - - - -" + end)
    assert (read["message"], read["@timestamp"]) == ("", RECEIVED)
    assert said(b"<13>1 - - - - - -" + end)[1] == {"version": "1"}
    assert not {"host", "process", "tags"} & read.keys()


def test_escapes_are_those_of_rfc_5424_alone():
    value = said(rb'<13>1 - - - - - [a b="\" \\ \] \n ]"] x')[1]["structured_data"]["a"]["b"]
    assert value == '" \\ ] \\n ]'


def test_what_begins_as_rfc_5424_and_is_not_sound_is_kept_whole_with_a_tag():
    for body in [
        b"<13>1 2026-05-17T12:00:00Z a b",
        b"<13>1 2026-99-17T12:00:00Z a b c d - x",
        b"<13>1 - a b c d x",
        b"<13>1 - a b c d [x",
        b'<13>1 - a b c d [x y="z] text',
        b'<13>1 - a b c d [x y="z"]text',
        b"<13>1 - a b c d -x",
    ]:
        read = event(body)
        assert (read["message"], read["tags"], read["@timestamp"]) == (body.decode(), [UNPARSED], RECEIVED)
        assert read["log"]["syslog"]["priority"] == 13


def test_what_has_no_priority_is_kept_whole_with_a_tag():
    for body in [b"hello", b"<192>x", b"<1234>x", b"< 1>x", b"<>x", b"May 17 12:00:00 a b: c", b"{}"]:
        read = event(body)
        assert (read["message"], read["tags"]) == (body.decode(), [UNPARSED])
        assert "log" not in read


# -- RFC 3164 ----------------------------------------------------------------------------------------------------------

TIME = "2026-05-17T11:22:33Z"


def test_what_goes_by_the_name_of_rfc_3164_is_read():
    for body, message, syslog, at in [
        ("May 17 11:22:33 web-1 su[23]: text", "text", ("web-1", "su", "23"), TIME),
        ("May 17 11:22:33 web-1 su: text", "text", ("web-1", "su", None), TIME),
        ("May 17 11:22:33 web-1 su[23] text", "text", ("web-1", "su", "23"), TIME),
        ("May 17 11:22:33 10.0.0.1 postfix/smtpd[9]: text", "text", ("10.0.0.1", "postfix/smtpd", "9"), TIME),
        ("May 17 11:22:33 fe80::1 su: text", "text", ("fe80::1", "su", None), TIME),
        ("May 17 11:22:33 su[23]: text", "text", (None, "su", "23"), TIME),
        ("May 17 11:22:33 su: text", "text", (None, "su", None), TIME),
        ("May 17 11:22:33 su:", "", (None, "su", None), TIME),
        ("May 17 11:22:33 web-1 some text", "some text", ("web-1", None, None), TIME),
        ("May 17 11:22:33 web-1 CEF:0|a|b", "CEF:0|a|b", ("web-1", None, None), TIME),
        ('May 17 11:22:33 web-1 {"a": 1}', '{"a": 1}', ("web-1", None, None), TIME),
        ('May 17 11:22:33 {"a": 1}', '{"a": 1}', (None, None, None), TIME),
        ("May 17 11:22:33 text", "text", (None, None, None), TIME),
        ("May 17 11:22:33", "", (None, None, None), TIME),
        ("2026-05-17T11:22:33+00:00 web-1 su[23]: text", "text", ("web-1", "su", "23"), TIME),
        ("2026-05-17 11:22:33 web-1 su: text", "text", ("web-1", "su", None), TIME),
        ("May 17 11:22:33 Message forwarded from aix-1: su[23]: text", "text", ("aix-1", "su", "23"), TIME),
        ("su[23]: text", "text", (None, "su", "23"), RECEIVED),
        ("text of five words here", "text of five words here", (None, None, None), RECEIVED),
        ("", "", (None, None, None), RECEIVED),
        ("May 17 2026 11:22:33: %ASA-6-302013: text", "%ASA-6-302013: text", (None, None, None), TIME),
        ("May 17 2026 11:22:33 fw-1 : %ASA-6-302013: text", "%ASA-6-302013: text", ("fw-1", None, None), TIME),
        ("May 17 11:22:33 fw-1 %ASA-6-302013: text", "%ASA-6-302013: text", ("fw-1", None, None), TIME),
        ("sw-1: May 17 11:22:33 UTC: %SYS-5-X: text", "%SYS-5-X: text", ("sw-1", None, None), TIME),
        ("sw-1: text at May 17 11:22:33", "text at May 17 11:22:33", (None, "sw-1", None), RECEIVED),
        ("su: May 17 11:22:33 text", "May 17 11:22:33 text", (None, "su", None), RECEIVED),
    ]:
        read, fields = event(b"<13>" + body.encode()), said(b"<13>" + body.encode())[1]
        assert (read["message"], tuple(map(fields.get, ("hostname", "appname", "procid"))), read["@timestamp"]) == (
            message,
            syslog,
            at,
        )
        assert "tags" not in read


@pytest.mark.parametrize(
    "body", ["29: *May 17 11:22:33: %SYS-5-X: text", "000029: sw-1: .May 17 11:22:33: %SYS-5-X: text"]
)
def test_the_number_that_a_device_gives_its_message_is_kept(body):
    read = event(b"<189>" + body.encode())
    assert (read["event"], read["message"], read["@timestamp"]) == ({"sequence": 29}, "%SYS-5-X: text", TIME)


def test_a_time_without_a_zone_is_of_the_zone_that_was_set():
    read = event(b"<13>May 17 11:22:33 web-1 su: text", zone=zone_of("Europe/Berlin"))
    assert read["@timestamp"] == "2026-05-17T09:22:33Z"


# -- both --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\0", b"\n\0"])
def test_an_end_of_line_is_no_part_of_the_text(end):
    assert event(b"<13>su: text" + end)["message"] == "text"
    assert event(end) is None


def test_text_in_another_encoding_is_read_and_bytes_that_are_none_are_replaced():
    assert event(b"<13>su: caf\xe9")["message"] == "caf\ufffd"
    assert event(b"<13>su: caf\xe9", encoding="latin-1")["message"] == "café"


def test_a_message_with_a_byte_order_mark_is_utf_8_whatever_was_set():
    body = b"<13>1 - - - - - - \xef\xbb\xbfcaf\xc3\xa9"
    assert event(body, encoding="latin-1")["message"] == "café"


def test_a_message_that_was_cut_is_marked_and_ends_with_a_whole_character():
    read = Reading().event("<13>su: café".encode()[:-1], NOW, is_cut=True)
    assert (read["message"], read["log"]["flags"]) == ("caf", ["truncated"])


def test_the_original_is_kept_where_that_is_asked_for():
    body = b"<189>29: May 17 11:22:33: %SYS-5-X: text\n"
    assert event(body, keeps_original=True)["event"] == {"original": body[:-1].decode(), "sequence": 29}
    assert "original" not in event(body)["event"]


def test_the_time_is_linear_in_the_bytes_of_a_message():
    parts = [b" ", b"[a ", b'[a b="', b'\\"', b"May 17 ", b"a: ", b"1 ", b"29: ", b'[a b="c" b="c"', b"%"]
    for begin in (b"<13>", b"<13>1 - a b c d ", b"<13>May 17 11:22:33 ", b"<13>1 2026-05-17T"):
        for part in parts:
            body = begin + part * ((1 << 20) // len(part))
            started = time.process_time()
            event(body)

            assert time.process_time() - started < 2
