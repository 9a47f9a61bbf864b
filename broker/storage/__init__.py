"""What the broker keeps.

The seam to a disk, the journal on it, its copy on a backup, and who may be answered when.
"""
