"""The input `syslog`: messages from the network and from sockets in the file system."""
