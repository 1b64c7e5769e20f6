"""What the author of a policy asks before it runs: what events become, what a change does, what destinations say.

Nothing here ships events, or keeps state. The answers come from the code that a running shipper uses: the chain of
processors, the plan of a revision, the open outputs.
"""
