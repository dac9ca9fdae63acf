"""Values as 64-bit words: their encoding, pools of distinct values, casts, nested values, frames of others."""
