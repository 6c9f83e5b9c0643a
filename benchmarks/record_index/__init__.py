"""The record-level index: its build, its size and writes through it, beside Hudi; its growth."""
