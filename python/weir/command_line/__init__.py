"""Commands of `weir` that this package does itself."""
