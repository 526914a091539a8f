"""The cell's door: validates, authenticates, appends; serves the read models, streams and the web page."""
