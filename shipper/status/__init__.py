"""Health, figures and metrics, for supervisors and for people."""
