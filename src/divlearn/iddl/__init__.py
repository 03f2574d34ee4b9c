"""IDDL: atoms, a divergence for each, and a head on the divergences, learned together."""
