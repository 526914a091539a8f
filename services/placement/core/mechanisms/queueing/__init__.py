"""What was given is kept to the end: a pass over the queue places what fits (Philly study, ATC'19, section 2.3)."""
