"""Python imports this by itself at its start: for scripts that are run as they are."""

import libs.testing.quick_torch  # noqa: F401
