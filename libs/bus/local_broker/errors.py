"""What goes wrong with a local broker."""


class LocalBrokerError(RuntimeError):
    """The broker cannot be fetched, started or kept running; the message says why and shows the end of the log."""
