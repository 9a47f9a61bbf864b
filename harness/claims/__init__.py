"""The claims of the source documents: they are run, and compared with what the runs show."""
