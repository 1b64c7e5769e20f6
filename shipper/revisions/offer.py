"""Checks of an offered revision: its number, its credentials. Decides, and changes nothing."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from shipper.pipeline.keyring import Keyring
from shipper.pipeline.plan import Plan
from shipper.protocol import bounds
from shipper.protocol.bounds import LIST_BYTES, cut, fitting
from shipper.sdk.codes import Code
from shipper.sdk.credentials import SHAPES, Credential, in_words
from shipper.sdk.errors import CredentialError, PolicyError, Problem
from shipper.spool.revisions import Known
from shipper.values import Change, Reason, Revision

_SHORTEST_SECRET = 4
"""A shorter one cannot be distinguished from ordinary words."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A policy as received, with its unchecked credentials; `sha256` is the digest that its sender states."""

    at: Revision
    text: str = field(repr=False)
    credentials: Any = field(default_factory=dict, repr=False)
    sha256: str | None = None

    @property
    def carried(self) -> Collection[str]:
        """The ids of its credentials, if these are a mapping."""
        return self.credentials if isinstance(self.credentials, Mapping) else ()


class Candidate(msgspec.Struct, eq=False):
    """A valid revision on its way to become active."""

    plan: Plan
    offered: Mapping[str, Credential]
    resumes: bool
    """It is the active revision already, and only its inputs have to start (after a restart)."""
    withdrawn: set[str] = msgspec.field(default_factory=set)
    """The offered credentials that were withdrawn since."""
    change: Change | None = None
    """Its change against the active revision; known once it is stored."""
    superseded: bool = False
    """A newer one replaced it."""
    decided: bool = False
    """It will be active, or has failed; a newer revision cannot supersede it any more."""


def out_of_order(
    at: Revision, sha256: str, known: Mapping[Revision, Known], active: Revision | None, newest: Candidate | None
) -> tuple[Reason, str] | None:
    """Returns why a text with this digest is not allowed under this number (a reason, its explanation), or None.

    `known` are the stored revisions, `newest` is the newest pending candidate. The active revision's own text is always
    allowed.
    """
    other = known[at].sha256 if at in known else None
    if newest is not None and newest.plan.at == at:
        other = newest.plan.sha256
    if other is not None and other != sha256:
        return "conflict", f"revision {at} is known with another text"
    if at == active:
        return None
    for newer in (active, newest.plan.at if newest is not None else None):
        if newer is not None and at < newer:
            return "stale", f"revision {at} is older than revision {newer}"
    if at in known and known[at].stage == "superseded":
        return "superseded", f"revision {at} was superseded, so its number is spent"
    return None


def check_same(carried: Mapping[str, Credential], others: Iterable[Candidate]) -> None:
    """Raises CredentialError if a pending revision brought another secret under the same id."""
    for candidate in others:
        for id, secret in carried.items():
            if candidate.offered.get(id, secret) != secret:
                text = f"credential `{id}` came with another content beside revision {candidate.plan.at}"
                raise CredentialError("credential_conflict", text)


def check_ids(wanted: Collection[str], used: Collection[str]) -> None:
    """Raises CredentialError if the ids of all credentials in use would not fit in a message any more."""
    new = set(wanted).difference(used)
    if new and fitting([*used, *new], bounds.IDS_BYTES) < len(used) + len(new):
        text = f"the ids of the credentials in use would have more than {bounds.IDS_BYTES} bytes"
        raise CredentialError("failed", f"{text}: wait until some are released", code=Code.TOO_MANY_CREDENTIALS)


def some_errors(errors: Iterable[Problem]) -> list[Problem]:
    """Returns as many errors as a nack has room for, shortened, and the number of the others."""
    every = [replace(error, path=cut(error.path), message=cut(error.message)) for error in errors]
    listed = every[: fitting(every, LIST_BYTES)]
    if len(listed) < len(every):
        text = f"{len(every) - len(listed)} more errors are left out"
        listed.append(Problem("", 1, 1, text, code=Code.ERRORS_LEFT_OUT))
    return listed


def check_credentials(plan: Plan, offered: Mapping[str, Credential], keyring: Keyring) -> None:
    """Raises CredentialError if a secret that the plan refers to is missing, or its shape does not fit its use."""
    for id, location in plan.credentials.items():
        if id not in offered and id not in keyring:
            raise CredentialError("credential_missing", f"credential `{id}` did not come with the policy", *location)
    for id, part, shapes, location in plan.references:
        credential = offered.get(id) or keyring.get(id)
        if credential is not None and not credential.fits(*shapes):
            has = f"the shape {credential.shape_name}" if credential.fits(*SHAPES) else "another shape"
            text = f"credential `{id}` has {has}; this {part} takes {in_words(shapes)} here"
            raise CredentialError("invalid", text, *location)


def without_secrets(errors: Iterable[Problem], carried: object) -> list[Problem]:
    """Returns the errors with an ellipsis for every word that is a secret offered with the policy.

    A message shows keys, names and ids, so that a typing error is seen; a secret in such a place may look like one.
    """
    secrets = [re.escape(text) for text in _secrets(carried) if len(text) >= _SHORTEST_SECRET]
    if not secrets:
        return list(errors)
    words = re.compile(rf"(?<![\w-])(?:{'|'.join(secrets)})(?![\w-])")
    return [replace(error, path=words.sub("…", error.path), message=words.sub("…", error.message)) for error in errors]


def _secrets(carried: object) -> Iterator[str]:
    credentials = carried.values() if isinstance(carried, Mapping) else (carried,)
    for credential in credentials:
        fields = credential.items() if isinstance(credential, Mapping) else (("", credential),)
        yield from (text for key, text in fields if isinstance(text, str) and key != "username")


def refusal(error: PolicyError | CredentialError) -> tuple[Reason, list[Problem]]:
    """Returns reason and errors of a nack."""
    if isinstance(error, PolicyError):
        return "invalid", list(error.problems)
    reasons: dict[str, Reason] = {
        "credential_missing": "credential_missing",
        "credential_conflict": "credential_conflict",
        "failed": "failed",
    }
    problem = Problem(error.path, error.line, error.column, str(error), code=error.code)
    return reasons.get(error.reason, "invalid"), [problem]
