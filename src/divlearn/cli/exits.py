"""Exit codes of interrupted commands; 0, 1 and 2 are those of all programs."""

KEPT = 3  # the best result so far
INTERRUPTED = 130  # before there was anything to keep
NOTHING_KEPT = "interrupted; nothing is kept"
