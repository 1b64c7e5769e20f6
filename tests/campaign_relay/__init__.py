"""`python -m tests.campaign_relay`: two edges and a principal under random faults; see `campaign`."""
