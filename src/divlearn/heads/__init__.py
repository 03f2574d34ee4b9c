"""Heads on features: losses and linear heads that minimise them, discriminants, ridge regression."""
