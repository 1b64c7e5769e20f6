"""What belongs to the process: log, clocks and threads, memory, and what it gives up before it holds secrets."""
