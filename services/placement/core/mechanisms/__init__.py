"""When does a job run? One mechanism is in force at a time; none knows another."""
