"""What authors write, and the frozen definition it compiles to. Knows nothing of how, where or when it is run."""
