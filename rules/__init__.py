"""The stock rules, a file a subject. They load as any user's rule files do, through
``load_rules``."""
