"""The flows room: one story a verb."""
