"""The serve room: from profiles to running, proven servers."""
