"""Optional native code. Everything here has an equal in plain torch, which serves without it."""
