"""Parts of tools/site."""
