"""Change logs, arrangements, output logs and the ledger as Delta tables; source adapters."""
