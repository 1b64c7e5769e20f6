"""The page at `/`: what people look at in a browser, made on the server from the values of `view` and `fleet`.

    markup      elements, with all text escaped
    parts       the sections of a shipper: inputs, outputs, revisions, credentials, …
    others      the sections about others: relays and the fleet
    document    the whole page, its headers and its files

There is no build step and nothing from elsewhere: one style sheet and one script, which fetches the page again every
two seconds and changes what differs. Without scripts the page reloads itself. The content security policy permits these
two files, and no inline style or script; so bars are drawn by SVG attributes.
"""
