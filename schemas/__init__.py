"""Generated from the event definitions: a JSON Schema per event version, and the AsyncAPI and OpenAPI documents.

`python -m schemas.generate` writes them; a test fails when they are out of date or break a consumer.
"""
