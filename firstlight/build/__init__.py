"""The build room: from recipes and locks to artifacts and releases."""
