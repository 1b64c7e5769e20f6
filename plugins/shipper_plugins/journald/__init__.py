"""The journal of systemd, read through `journalctl`."""
