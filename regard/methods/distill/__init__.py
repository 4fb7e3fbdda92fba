"""A student learns from its teacher."""
