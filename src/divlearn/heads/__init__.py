"""Heads on features: losses and the linear heads that minimise them, and discriminants."""
