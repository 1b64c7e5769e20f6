"""Shared by plugins and the rest of shipper; plugins import it through `shipper.plugin`, or a module that is PUBLIC."""
