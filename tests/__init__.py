"""The tests; the folders mirror the library."""
