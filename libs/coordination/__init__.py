"""How the tasks that share a GPU share it: see README.md."""
