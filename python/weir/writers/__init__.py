"""Files of parameters that are written from Python: row files and checkpoints."""
