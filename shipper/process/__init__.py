"""What belongs to the process: its log, its signals, its memory, and what it gives up before it holds secrets."""
