"""Files of this host. The input is settings on top of `shipper_plugins.tail`."""
