"""The daily digest of GPU use."""
