"""Private training inside other libraries' trainers: `transformers` (with `peft`) and `lightning`, each an extra."""
