"""Benchmarks: `python -m benchmarks NAME`. Each module of this folder states one of them.

`common/` runs them and makes their pages, `systems/` has the systems that write and read tables,
`workloads/` has work that is measured without a peer.
"""
