"""What a run tells in words and tables: the results, the narration on the terminal, the event log."""
