"""Command line: arguments to one library call to text or JSON."""
