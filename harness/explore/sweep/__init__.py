"""The sweep: how often each nemesis breaks each policy, from the histories of many runs."""
