"""A model that has read before learns a task."""
