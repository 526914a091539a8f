"""A job's life: attempts, suspension, moves. The only room that says what happens to a job."""
