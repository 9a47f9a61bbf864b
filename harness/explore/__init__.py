"""Many tests: drawn, swept, replayed, made smaller."""
