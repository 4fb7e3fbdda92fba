"""What everything else stands on: errors, files, locks, seeds. It needs nothing of ours."""
