"""The settings of a service as fields of its state: `SettingChanged` changes them."""

from __future__ import annotations

from libs.contracts import settings
from libs.contracts.gateway import SettingChanged


def take_setting(event: SettingChanged, service: str, state: object) -> bool:
    """Set the field with the setting's name, if it is a setting of this service; returns whether it is one.

    Args:
        event: the change.
        service: the owner of `state`.
        state: it has a field for each of the service's settings.
    """
    if event.service != service or event.name not in settings.names(service):
        return False
    setattr(state, event.name, float(event.value))
    return True
