"""The ledger: records of ingests and runs, labels and names of versions, and recovery from crashes."""
