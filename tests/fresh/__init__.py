"""`make run` and `make test` of this commit on a Debian as it comes, by an ordinary user:

    .venv/bin/python -m tests.fresh bookworm trixie [--pytest-args='tests/spool']

Needs root, for systemd-nspawn. The Debian has what mmdebstrap makes it of, and the three packages that README.md asks
for. Mirrors and package indexes are those that this machine's apt and pip are set up with.
"""
