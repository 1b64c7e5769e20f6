"""The meaning of a broker's error codes for the records of a request. No I/O.

A code has one of three meanings: the batch was not appended, the batch may have been appended, or the broker no longer
knows its producer. Only after the first may its events be sent again under other sequence numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

from shipper.plugin import Answer, Code, Held, Later, Outcome

NONE = 0
UNKNOWN_TOPIC = 3
LEADER_NOT_AVAILABLE = 5
TOO_LARGE = 10
INVALID_TOPIC = 17
RECORD_LIST_TOO_LARGE = 18
TOPIC_FORBIDDEN = 29
CLUSTER_FORBIDDEN = 31
UNSUPPORTED_VERSION = 35
DUPLICATE_SEQUENCE = 46
SASL_FAILED = 58
INVALID_RECORD = 87

FINAL = frozenset({TOO_LARGE, INVALID_TOPIC, RECORD_LIST_TOO_LARGE, 32, INVALID_RECORD})
"""The broker always refuses the same bytes."""
OF_NOTHING = frozenset({2, 42, INVALID_RECORD})
"""A broker's answers to a request without records, of a client that may write."""
UNKNOWN_PRODUCER = frozenset({45, 47, 59, 90})
"""The broker has lost the producer's last sequence numbers: a new producer begins."""
MOVED = frozenset({UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, 6, 9, 74, 75, 100})
"""The partition has another leader, or none: metadata are out of date."""

NOT_THIS_LOGIN = frozenset({33, 34})
"""A broker takes another mechanism, or no login at all at this port."""

_NAMES: Mapping[int, str] = {
    -1: "UNKNOWN_SERVER_ERROR",
    1: "OFFSET_OUT_OF_RANGE",
    2: "CORRUPT_MESSAGE",
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    5: "LEADER_NOT_AVAILABLE",
    6: "NOT_LEADER_OR_FOLLOWER",
    7: "REQUEST_TIMED_OUT",
    8: "BROKER_NOT_AVAILABLE",
    9: "REPLICA_NOT_AVAILABLE",
    10: "MESSAGE_TOO_LARGE",
    13: "NETWORK_EXCEPTION",
    14: "COORDINATOR_LOAD_IN_PROGRESS",
    15: "COORDINATOR_NOT_AVAILABLE",
    16: "NOT_COORDINATOR",
    17: "INVALID_TOPIC_EXCEPTION",
    18: "RECORD_LIST_TOO_LARGE",
    19: "NOT_ENOUGH_REPLICAS",
    20: "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    21: "INVALID_REQUIRED_ACKS",
    29: "TOPIC_AUTHORIZATION_FAILED",
    31: "CLUSTER_AUTHORIZATION_FAILED",
    32: "INVALID_TIMESTAMP",
    33: "UNSUPPORTED_SASL_MECHANISM",
    34: "ILLEGAL_SASL_STATE",
    35: "UNSUPPORTED_VERSION",
    42: "INVALID_REQUEST",
    43: "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    44: "POLICY_VIOLATION",
    45: "OUT_OF_ORDER_SEQUENCE_NUMBER",
    46: "DUPLICATE_SEQUENCE_NUMBER",
    47: "INVALID_PRODUCER_EPOCH",
    53: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    56: "KAFKA_STORAGE_ERROR",
    58: "SASL_AUTHENTICATION_FAILED",
    59: "UNKNOWN_PRODUCER_ID",
    72: "LISTENER_NOT_FOUND",
    74: "FENCED_LEADER_EPOCH",
    75: "UNKNOWN_LEADER_EPOCH",
    76: "UNSUPPORTED_COMPRESSION_TYPE",
    87: "INVALID_RECORD",
    89: "THROTTLING_QUOTA_EXCEEDED",
    90: "PRODUCER_FENCED",
    100: "UNKNOWN_TOPIC_ID",
}
_NOT_APPENDED = MOVED | UNKNOWN_PRODUCER | {2, 10, 17, 18, 19, 21, 29, 31, 32, 35, 42, 43, 44, 76, 87, 89}
_FORBIDDEN = frozenset({TOPIC_FORBIDDEN, CLUSTER_FORBIDDEN, 53})
_HELD_SETTING = frozenset({21, 33, UNSUPPORTED_VERSION, 42, 43, 44, 76})
_OF_TARGET = frozenset({UNKNOWN_TOPIC, 19, TOPIC_FORBIDDEN, 43, 44, 76})


def name(code: int) -> str:
    """Returns Kafka's name of an error code."""
    return _NAMES.get(code, f"the unknown error {code}")


def is_in_doubt(code: int) -> bool:
    """Returns whether a batch with this answer may have been appended, which an unknown code implies."""
    return code not in _NOT_APPENDED and code not in (NONE, DUPLICATE_SEQUENCE)


def answer(code: int, topic: str) -> Answer:
    """Returns the answer for the events of a batch that was not in doubt before."""
    reason = f"topic {topic}: {name(code)}"
    of_target = code in _OF_TARGET
    if code in _FORBIDDEN:
        return Answer(Outcome.HELD, reason, of_target, Code.FORBIDDEN)
    if code in _HELD_SETTING:
        return Answer(Outcome.HELD, reason, of_target, Code.REFUSED)
    if code == INVALID_TOPIC:
        return Answer(Outcome.REJECTED, reason, code=Code.REJECTED)
    return Answer(Outcome.LATER, reason, of_target, Code.OVERLOADED if code == 89 else Code.UNAVAILABLE)


def refusal(code: int, where: str) -> Later | Held:
    """Returns the error of a request without events, such as one for a producer's id."""
    reason = f"{where}: {name(code)}"
    if code == SASL_FAILED:
        return Held(reason, code=Code.UNAUTHORIZED)
    if code in _FORBIDDEN:
        return Held(reason, code=Code.FORBIDDEN)
    if code in _HELD_SETTING:
        return Held(reason, code=Code.REFUSED)
    return Later(reason)
