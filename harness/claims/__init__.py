"""What the source documents say, run, and held against what came out."""
