"""`shipper fleet`: publishes one policy for many hosts, and asks whether all have drained.

    versions   publish, wait, rollback
    views      status, members, history
    members    leave, forget, release
    secrets    secret set, list, rm
    store      accept-restore, settings

`work` opens the fleet for all of them, `options` has the options that they share, and `output` prints.
"""

from __future__ import annotations

from pathlib import Path

import click

from shipper.commands.fleet import members, secrets, store, versions, views
from shipper.commands.fleet.options import with_config


@click.group(short_help="Publish one policy for many hosts, and ask whether all have drained.")
@with_config
@click.pass_context
def command(context: click.Context, config: Path | None) -> None:
    """Publish a policy to every host of a fleet, and ask whether all have drained.

    A fleet is the hosts whose supervise.yaml names the same fleet in the same store (etcd, or the API server of a
    Kubernetes cluster); each is a member. Each change is a version with a number. A member reaches three stages of it:
    `received`, `active` when it works by the version, and `drained` when it has delivered all events of older versions.
    When `wait` says that every member has drained it, what only older versions use can be revoked: a key that all hosts
    share, for example.

    \b
    Examples:
      shipper fleet publish policy.yaml --wait drained
      shipper fleet wait 7 --stage drained --timeout 10m
      shipper fleet secret set es --file es.key
      shipper fleet status --watch

    Exit status: 0 done, 1 refused, 2 wrong usage, 69 the store cannot be reached, 78 a wrong configuration or policy;
    of `wait` and `publish --wait` also 3 timed out, 4 refused by a member, 5 no such version, or gone.
    """
    context.obj = config


for _verb in (
    *(versions.publish, versions.wait, versions.rollback),
    *views.VERBS,
    *(members.leave, members.forget, members.release_despite),
    *(secrets.secret, store.accept_restore, store.settings),
):
    command.add_command(_verb)
