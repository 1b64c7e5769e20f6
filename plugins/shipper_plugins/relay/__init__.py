"""From one shipper to another: the input is a principal, the output an edge. Beside them is what both share, the
format on the wire; without I/O.
"""
