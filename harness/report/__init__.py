"""Everything about a test that a person reads: summary, report, JUnit and display."""
