"""PUBLIC: the codes of problems: programs decide by them, people read messages.

A message may be reworded, a code may not: each code in this list keeps its name and its meaning. Errors carry their
code from where they are raised (`errors`). `python -m shipper.sdk.codes` prints the page docs/codes.md.
"""

from __future__ import annotations

import errno
import re
import socket
from enum import StrEnum
from typing import NamedTuple


class Code(StrEnum):
    """A code, and its meaning in a line."""

    meaning: str

    def __new__(cls, code: str, meaning: str) -> Code:
        made = str.__new__(cls, code)
        made._value_, made.meaning = code, meaning
        return made

    OK = "ok", "Nothing is wrong; of a result: the action was carried out."
    END_OF_INPUT = "end_of_input", "An input has read everything and has stopped; nothing is wrong with it."

    # -- messages of the protocol
    MALFORMED = "malformed", "A line is no JSON object in UTF-8, or a field of its message has a wrong type or value."
    UNKNOWN_TYPE = "unknown_type", "A message has a type that this shipper does not know."
    LINE_TOO_LONG = "line_too_long", "A line, or an answer, has more bytes than a line may have."
    HELLO_FIRST = "hello_first", "A message came before `hello`."
    SECOND_HELLO = "second_hello", "A second `hello` came."
    UNKNOWN_PROTOCOL = "unknown_protocol", "`hello` asks for a version of the protocol that is not supported."
    STATE_KEYS_INVALID = "state_keys_invalid", "The state keys of `hello` are not valid keys."
    STOPPING = "stopping", "The shipper is stopping, so a message is not carried out, or its result is not awaited."

    # -- actions
    UNKNOWN_ACTION = "unknown_action", "There is no action of this name."
    BAD_PARAMS = "bad_params", "The params of an action do not fit."
    NOTHING_TO_ORDER = "nothing_to_order", "An order names nothing that exists; its message lists what exists."
    NOT_FORWARDED = "not_forwarded", "Events cannot be forwarded to where their output goes now; see the message."
    TOO_MANY_ACTIONS = "too_many_actions", "Too many actions wait; ask again when one has ended."
    NOT_RUNNING = "not_running", "No shipper is running that could carry out the action."

    # -- policies
    INVALID = "invalid", "A policy or its text is not valid, for a cause without a code of its own."
    SYNTAX = "syntax", "A policy is not strict YAML."
    UNKNOWN_KEY = "unknown_key", "A key is unknown at this place."
    MISSING_KEY = "missing_key", "A required key is missing."
    BAD_VALUE = "bad_value", "A value has a wrong type, or is not allowed at this place."
    BAD_OPTION = "bad_option", "An option of a plugin has an impossible value, or conflicts with others."
    UNKNOWN_PLUGIN = "unknown_plugin", "No plugin of this type is installed, or it cannot be loaded."
    UNKNOWN_OUTPUT = "unknown_output", "An input names an output that the policy does not have."
    NO_EFFECT = "no_effect", "A part of a policy has no effect (a warning: the policy is valid)."
    SECRET_IN_POLICY = "secret_in_policy", "The policy may contain a secret; a policy refers to secrets by ids."
    SECRET_UNAVAILABLE = "secret_unavailable", "A secret that a policy file refers to is missing or cannot be read."
    FILE_UNREADABLE = "file_unreadable", "A file cannot be read, or has the wrong kind or content."
    SHA256_MISMATCH = "sha256_mismatch", "The sha256 of a policy's text differs from that of its message."
    STALE = "stale", "A revision is older than the active one, or than one that was received."
    CONFLICT = "conflict", "A revision is known with another text."
    SUPERSEDED = "superseded", "A revision was superseded by a newer one, so its number is used up."
    ERRORS_LEFT_OUT = "errors_left_out", "There are more errors than fit into a message."

    # -- credentials
    CREDENTIAL_MISSING = "credential_missing", "A secret is missing; inputs, outputs and events that need it wait."
    CREDENTIAL_WITHDRAWN = "credential_withdrawn", "A secret was withdrawn; events bound to it are held."
    CREDENTIAL_CONFLICT = "credential_conflict", "A credential id came with another secret than before."
    CREDENTIAL_INVALID = "credential_invalid", "A credential has a wrong shape, or cannot be used at its place."
    CREDENTIAL_RELEASED = "credential_released", "A credential was released, and may have been revoked."
    TOO_MANY_CREDENTIALS = "too_many_credentials", "The ids of all credentials in use do not fit into a message."

    # -- starting
    START_FAILED = "start_failed", "A part of a valid policy could not start, for a cause without a code of its own."
    PORT_TAKEN = "port_taken", "Another process listens on the address."
    ADDRESS_UNAVAILABLE = "address_unavailable", "An address to listen on is unknown, not of this host, or not allowed."
    NO_DESCRIPTORS = "no_descriptors", "The process, or the host, may not open more files."
    LOCKED = "locked", "The state directory is sealed by keys that were not given."
    STATE_BUSY = "state_busy", "Another process owns the state directory."
    STATE_NEWER = "state_newer", "The state directory was written by a newer version, in an unknown format."
    STATE_UNUSABLE = "state_unusable", "The state directory is of another kind or user, read-only, or not permitted."
    DAMAGED = "damaged", "Stored bytes are damaged."

    # -- the disk, and the queue
    DISK_FULL = "disk_full", "The disk or a quota has no room left."
    DISK_FAILED = "disk_failed", "The disk fails to read or to write."
    DISK_SILENT = "disk_silent", "The disk does not answer."
    STORE_LOCKED = "store_locked", "Another process keeps the database of the state directory locked."
    QUEUE_FULL = "queue_full", "The queue holds as much as it may; intake waits."
    DEAD_LETTERS_FULL = "dead_letters_full", "The dead-letter store is full: events are held, or old letters dropped."

    # -- inputs
    NO_OUTPUT = "no_output", "An input has no output, so it reads nothing."
    FILE_MISSING = "file_missing", "A file to read does not exist."
    DATA_LOST = "data_lost", "Data was gone before it was read."
    CROWDED = "crowded", "Peers are turned away for lack of room."
    INPUT_DEGRADED = "input_degraded", "An input reports that it cannot do all of its job."

    # -- outputs
    DELIVERING = "delivering", "The events of a drain are being delivered."
    UNAVAILABLE = "unavailable", "A destination has given no final answer, for a cause without a code of its own."
    UNREACHABLE = "unreachable", "No connection to a destination can be made; nothing was sent."
    NAME_NOT_FOUND = "name_not_found", "The name of a destination cannot be resolved."
    TLS_FAILED = "tls_failed", "TLS with a destination failed, for example because its certificate is not trusted."
    TIMED_OUT = "timed_out", "A request timed out."
    NO_ANSWER = "no_answer", "A request has had no answer yet, or its connection ended before one."
    BAD_ANSWER = "bad_answer", "A destination gave an invalid answer."
    OVERLOADED = "overloaded", "A destination asks for a later retry (429)."
    UNAUTHORIZED = "unauthorized", "A destination does not know the credential (401); events are held."
    FORBIDDEN = "forbidden", "The credential lacks a privilege (403); events are held."
    REFUSED = "refused", "A destination refuses requests for another cause; events are held."
    REJECTED = "rejected", "A destination rejects events for ever: they become dead letters."
    TOO_LARGE = "too_large", "A destination refuses even small requests as too large (413)."
    LEASE_LAPSED = "lease_lapsed", "The lease has run out: nothing is sent, and events are held."
    DEADLINE_PASSED = "deadline_passed", "A drain is past its deadline."
    ORDER_NEEDED = "order_needed", "A barrier waits for an order: dead_letter or drop."
    PRINCIPAL_WENT_BACK = (
        "principal_went_back",
        "The principal of a relay has an older copy of its state directory: it lacks what it had confirmed.",
    )
    CLIENT_STUCK = (
        "client_stuck",
        "An output has not opened or closed its connections for a while; its lane waits.",
    )
    NO_PROGRESS = "no_progress", "Nothing was delivered for a while, for an unknown cause."

    # -- anything
    FAILED = "failed", "Something failed, in a way that no other code names."
    OUTDATED = "outdated", "Positions that an input wanted to go on from are not the stored ones any more."
    PLUGIN_FAULT = "plugin_fault", "A plugin handed over what its contract does not allow; its author has to mend it."
    INTERNAL_ERROR = "internal_error", "An error that nobody foresaw; the log has its place."
    UNKNOWN = "unknown", "It is not known."


class Why(NamedTuple):
    """A problem in words, and its code."""

    problem: str
    code: str


LONGEST = 64
_SHAPE = re.compile(rf"[a-z][a-z0-9_]{{0,{LONGEST - 1}}}")
_OF_ERRNO = {
    errno.EADDRINUSE: Code.PORT_TAKEN,
    errno.EADDRNOTAVAIL: Code.ADDRESS_UNAVAILABLE,
    errno.EMFILE: Code.NO_DESCRIPTORS,
    errno.ENFILE: Code.NO_DESCRIPTORS,
    errno.ENOSPC: Code.DISK_FULL,
    errno.EDQUOT: Code.DISK_FULL,
    errno.EIO: Code.DISK_FAILED,
    errno.ENOENT: Code.FILE_MISSING,
}


def checked(code: str) -> str:
    """Returns the code, listed or a plugin's own; raises ValueError if it is malformed."""
    if not _SHAPE.fullmatch(code):
        raise ValueError(f"a code is at most {LONGEST} of the characters a-z, 0-9 and _, a letter first")
    return code


def of_os_error(error: OSError, otherwise: str) -> str:
    """Returns the code of an error of the system."""
    if isinstance(error, socket.gaierror):
        return Code.NAME_NOT_FOUND
    return _OF_ERRNO.get(error.errno or 0, otherwise)


def page() -> str:
    """Returns the list as a page of the documentation."""
    rows = "".join(f"| `{code}` | {code.meaning} |\n" for code in Code)
    return f"{_BEFORE}\n| code | meaning |\n|---|---|\n{rows}"


_BEFORE = """# Codes

Every `error`, every entry of `nack.errors`, every unit and drain of `observed` and every `result` carries a `code`;
`shipper status --json`, `shipper order --json` and `shipper validate --format json` show them too. Programs decide by
codes, people read messages: a message may be reworded, a code may not. A later version may have more codes, so treat an
unknown one as `failed`. Plugins may have codes of their own.

[Troubles](troubles.md) says what to do about each code that an input or output may have.

A unit with several problems has the code of its own cause (`unauthorized`), not of a consequence (`deadline_passed`).
"""

if __name__ == "__main__":
    print(page(), end="")
