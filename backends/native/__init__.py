"""The native backend: programs as machine code, made by LLVM."""
