"""Where the gateway touches the world: the log, SQL, files."""
