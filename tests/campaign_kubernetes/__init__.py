"""`python -m tests.campaign_kubernetes`: members in a cluster whose objects never rest; see `campaign`."""
