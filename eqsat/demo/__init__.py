"""What ``eqsat demo`` runs: transformer blocks, and a real model."""
