"""Linear heads on features: losses of their scores, and the best head for a loss."""
