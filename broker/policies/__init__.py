"""The high availability policies, one module or package for each."""
