"""The run of one test, from its spec to a judged history."""
