"""One test, from its spec to a judged history."""
