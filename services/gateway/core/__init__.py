"""The pure part of the gateway: what follows from rows and requests alone."""
