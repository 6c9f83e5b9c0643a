"""Which of several records with one key stays, in Arrow, columns at a time."""
