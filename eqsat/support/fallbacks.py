"""Fallbacks in the log: what a backend does not know, and what runs in its stead."""


def log_fallback(backend: str, kernel: str, how: str, reason: str) -> None:
    """Tell the logger ``eqsat`` how a kernel runs, and why no other way."""
    import logging  # which takes 4 ms, and is seldom needed

    log = logging.getLogger("eqsat")
    log.info("%s: %s runs as %s: %s", backend, kernel, how, reason)
