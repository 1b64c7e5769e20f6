"""What an error of the API server means to a fleet. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shipper.apiserver.errors import ApiError, Busy, Conflict, Gone, NotFound, Unreachable
from shipper.fleet.store import Compacted, StoreError, StoreRefused, StoreUnreachable


@contextmanager
def told(purpose: str) -> Iterator[None]:
    """Raises the StoreError of an ApiError; `purpose`: what was asked, as in `read head of the fleet prod`."""
    try:
        yield
    except ApiError as error:
        raise problem(error, purpose) from None


def problem(error: ApiError, purpose: str) -> StoreError:
    """Returns the StoreError of an ApiError that says nothing of a key."""
    if isinstance(error, Gone):
        return Compacted(f"{purpose}: {error}")
    if isinstance(error, NotFound):
        return StoreRefused(
            f"{purpose}: {error}; if the namespace is there, the CustomResourceDefinition is not: "
            "kubectl apply -f packaging/kubernetes/crds"
        )
    if isinstance(error, Unreachable | Busy | Conflict):
        return StoreUnreachable(f"{purpose}: {error}")
    return StoreRefused(f"{purpose}: {error}")
