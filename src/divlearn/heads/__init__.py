"""Heads on features: losses, linear heads that minimise them, discriminants, ridge regression."""
