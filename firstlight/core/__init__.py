"""The core room: words that every room shares."""
