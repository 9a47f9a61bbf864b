"""What the broker keeps: disks, the journal and its copy on a backup, and who is answered when."""
