"""What the gateway takes and gives, as pydantic models: the HTTP edge, and nothing further in."""
