"""`shipper schema`."""

from __future__ import annotations

import click


@click.command("schema")
def command() -> None:
    """Print the JSON Schema of policies, with every installed plugin.

    Editors with a YAML language server then complete and check a policy that begins with
    `# yaml-language-server: $schema=shipper.schema.json`.

    \b
    Example:       shipper schema > shipper.schema.json
    """
    from shipper.policy.registry import Registry
    from shipper.policy.schema import json_schema, text

    schema = json_schema(Registry.installed())
    if "$comment" in schema:
        click.echo(f"shipper: {schema['$comment']}", err=True)
    click.echo(text(schema))
