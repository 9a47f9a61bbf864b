"""The broker's storage: disks, the journal and its copy on a backup, and the gate for receipts."""
