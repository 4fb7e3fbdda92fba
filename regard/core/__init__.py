"""What everything else stands on: errors, files, locks, seeds. It needs nothing of ours."""

VERSION = "0.1.0"
