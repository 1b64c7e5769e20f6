"""The command line: one module a verb, named like it, each with a click command called `command`.

A verb imports what it runs only when it is chosen; what several verbs share does not belong here, but in `shipper`.
"""
