"""What a node does with orders: the one state machine of the agent and of the simulated node."""
