"""The interface of the spool by subject: parts add the clock, the sealer, the limits, the figures to transactions."""
