"""A failing test made smaller."""
