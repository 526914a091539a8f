"""Where the projection touches the world: SQL, the bus, the metrics port."""
