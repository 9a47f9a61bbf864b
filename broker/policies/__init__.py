"""One module per high availability policy."""
