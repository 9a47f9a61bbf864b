"""Composes a test and runs it: spec, history, run, store, report, command line."""
