"""The native backend: machine code through LLVM."""
