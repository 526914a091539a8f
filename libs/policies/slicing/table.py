"""The policies with time slices by name. A new one is one new file and one line here."""

from __future__ import annotations

from libs.policies.policy import Policy
from libs.policies.slicing.gandiva import GANDIVA

SLICING_POLICIES: dict[str, Policy] = {policy.name: policy for policy in (GANDIVA,)}
