"""The hosts room: what a host is and what it says of itself."""
