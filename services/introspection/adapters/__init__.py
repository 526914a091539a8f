"""Where introspection touches the world: the windows shells (embedded, Faust) and the ingest shell."""
