"""Tests against real servers. A package, so that a fixture can live as long as its tests and no longer."""
