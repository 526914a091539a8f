"""Jobs stand still on their servers, and go on there."""
