"""What plugins and the rest of shipper share; plugins import it by way of `shipper.plugin`."""
