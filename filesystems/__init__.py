"""File systems of our making: FUSE, an NFSv4 client, and a disk that breaks."""
