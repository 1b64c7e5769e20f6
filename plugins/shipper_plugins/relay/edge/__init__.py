"""The sending side, which is the output: its sessions, its jobs, and the answers to them."""
