"""Programs that really fail, and how well failure analysis tells why."""
