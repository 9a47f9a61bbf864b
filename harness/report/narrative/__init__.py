"""The story of a finding, in words."""
