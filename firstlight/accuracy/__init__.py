"""The accuracy room: what a checkpoint declares and holds, and what a KV cache costs."""
