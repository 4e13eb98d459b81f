"""The effects room: the doors to disk, clock, process and network."""
