"""The search for a schedule that breaks the guarantee: its runs until a finding, their log."""
