"""Who holds which bytes: the allocator's model, snapshots, the ledger and the host."""
