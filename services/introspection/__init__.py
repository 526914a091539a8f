"""Introspection: what is going on? Measures progress from telemetry, and notices nodes that fell silent."""
