"""The secrets that this process holds, by id. In memory only; the disk has keyed fingerprints of them (`spool`).

An id names one secret for ever: what arrives under a known id must be the same secret, also after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from shipper.policy.registry import Registry
from shipper.process import log
from shipper.process.environment import REAL, InThread
from shipper.protocol.bounds import LONGEST_ID
from shipper.sdk.credentials import SHAPES, Credential, in_words
from shipper.sdk.errors import CredentialError, anew
from shipper.sdk.tls import NotNow, check_usable


class Keyring:
    """Credentials by id. `fingerprint` is keyed by the state directory, `known` are the fingerprints stored there.

    `registry` knows the shapes of plugins, beside `SHAPES`.
    """

    def __init__(
        self,
        fingerprint: Callable[[bytes], bytes],
        known: Mapping[str, bytes],
        registry: Registry | None = None,
        in_thread: InThread = REAL.in_thread,
    ) -> None:
        self._fingerprint, self._in_thread = fingerprint, in_thread
        self._registry = Registry({}) if registry is None else registry
        self._known = dict(known)
        self._held: dict[str, Credential] = {}
        self.withdrawn: set[str] = set()
        """Ids that a supervisor withdrew and has not supplied again."""

    def parse(self, values: object, path: str = "credentials") -> dict[str, Credential]:
        """Returns the credentials of a message, by id. Raises CredentialError; its text names only ids and shapes."""
        if not isinstance(values, Mapping):
            raise CredentialError("invalid", "credentials are a mapping of ids to secrets", path)
        parsed = {}
        for id, value in values.items():
            if not is_id(id):
                text = f"a credential has an id of {len(id)} characters; it has {LONGEST_ID} bytes at most"
                raise CredentialError("invalid", text, path)
            try:
                parsed[id] = Credential.parse(value)
            except ValueError as error:
                raise CredentialError("invalid", f"credential `{id}`: {error}", f"{path}.{id}") from None
            for secret in parsed[id].secrets(self._registry.loaded_shapes()):
                log.hide(secret)
        return parsed

    async def take(self, values: object) -> dict[str, Credential]:
        """Parses and checks the credentials, also whether a connection could use each. Raises CredentialError."""
        parsed = self.parse(values)
        for error in (await self.unusable(parsed)).values():
            raise anew(error)
        self.check(parsed)
        return parsed

    def check(self, offered: Mapping[str, Credential]) -> None:
        """Raises CredentialError if a known id has another secret."""
        for id, credential in offered.items():
            held, content = self._held.get(id), credential.canonical()
            is_other = held is not None and held.canonical() != content
            marks = (self._fingerprint(content), self._fingerprint(credential.written()))  # of an earlier version
            if is_other or self._known.get(id) not in (None, *marks):
                raise CredentialError("credential_conflict", f"credential `{id}` is known with another content")

    def fingerprints(self, offered: Mapping[str, Credential]) -> dict[str, bytes]:
        """Returns what the spool stores of these."""
        return {id: self._fingerprint(credential.canonical()) for id, credential in offered.items()}

    def keep(self, offered: Mapping[str, Credential], *, withdrawn: Collection[str] = ()) -> set[str]:
        """Holds these after `check`, without those withdrawn since; returns the ids that were missing."""
        held = {id: credential for id, credential in offered.items() if id not in withdrawn}
        missing = held.keys() - self._held
        self._held.update(held)
        self.withdrawn.difference_update(held)
        self._known.update(self.fingerprints(offered))
        return missing

    def withdraw(self, ids: Collection[str]) -> None:
        """Drops these until they are supplied again."""
        for id in ids:
            self._held.pop(id, None)
        self.withdrawn.update(ids)

    def forget(self, ids: Collection[str], *, entirely: bool = False) -> None:
        """Drops these; `entirely`: they were never used, and the ids are free again."""
        for id in ids:
            self._held.pop(id, None)
            self.withdrawn.discard(id)
            if entirely:
                self._known.pop(id, None)

    async def unusable(self, offered: Mapping[str, Credential]) -> dict[str, CredentialError]:
        """Returns those that no connection could use, and which would therefore hold their events for ever.

        No installed plugin has their shape, or they contradict it. OpenSSL checks them in a thread; if the shape is
        unknown, plugins are imported there too.
        """
        refused = await self._in_thread(
            lambda: [_refused(id, secret, self._registry) for id, secret in offered.items()]
        )
        return {id: error for id, error in zip(offered, refused, strict=True) if error is not None}

    def get(self, id: str) -> Credential | None:
        """Returns the secret of an id; None if it is not held."""
        return self._held.get(id)

    def of(self, ids: Iterable[str]) -> dict[str, Credential]:
        """Returns the secrets of these ids that are held."""
        return {id: self._held[id] for id in ids if id in self._held}

    def __contains__(self, id: str) -> bool:
        return id in self._held


def is_id(id: str) -> bool:
    """Whether it is short enough for the id of a credential; a longer one is never accepted."""
    return len(id.encode()) <= LONGEST_ID


def _refused(id: str, credential: Credential, registry: Registry) -> CredentialError | None:
    try:
        check_usable(credential)
        if not credential.fits(*SHAPES) and not credential.fits(*registry.shapes()):
            raise ValueError(f"a credential has exactly one shape, such as {in_words(SHAPES)}")
    except NotNow:
        return None  # the lane will tell
    except ValueError as error:
        return CredentialError("invalid", f"credential `{id}`: {error}", f"credentials.{id}")
    return None
