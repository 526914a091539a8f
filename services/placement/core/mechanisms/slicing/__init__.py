"""More jobs than GPUs: servers are over-subscribed, and jobs take turns on them (Gandiva, OSDI'18, section 4)."""
