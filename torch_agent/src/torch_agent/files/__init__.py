"""Files of jobs: what is kept beyond a job's end, and how the gateway fetches them."""
