"""Comparisons with high precision, with peers and with the paper."""
