"""The commands beyond looking: one file each, thin; what is heavy is imported when it runs."""
