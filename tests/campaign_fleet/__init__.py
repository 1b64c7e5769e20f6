"""`python -m tests.campaign_fleet`: real hosts of a fleet under random faults; see `campaign`."""
