"""What a request may say of a job's environment."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from services.gateway.models.job_request import JobRequest


def request(**fields: Any) -> JobRequest:
    return JobRequest.model_validate({"command": "true", **fields})


@pytest.mark.parametrize(
    "given, found",
    [
        ("imagenet", {"imagenet": ""}),
        (["imagenet:/data", "coco"], {"imagenet": "/data", "coco": ""}),
        ({"imagenet": "/data"}, {"imagenet": "/data"}),
    ],
)
def test_mounts_have_several_forms(given: object, found: dict[str, str]):
    spec = request(mounts=given, image="ubuntu").spec("ada")
    assert spec.mounts == found
    assert spec.needs == ["images", *(f"data:{name}" for name in found)]


@pytest.mark.parametrize(
    "fields, says",
    [
        ({"mounts": "imagenet:/data"}, "without an image data stays where the node has it.*SANJAYA_DATA_IMAGENET"),
        ({"mounts": ["a", "a"]}, "a stands there twice"),
        ({"mounts": "a:relative", "image": "ubuntu"}, "pattern"),
        ({"mounts": "a b"}, "pattern"),
        ({"venv": "/v", "python": "/usr/bin/python3"}, "venv and python contradict each other"),
        ({"conda": "torch", "venv": "/v"}, "conda and venv contradict each other"),
        ({"image": "ubuntu", "setup": "pip install x"}, "image and setup contradict each other"),
        ({"python": "python3"}, "expected an absolute path on the nodes"),
        ({"venv": ".venv"}, "expected an absolute path on the nodes"),
        ({"image": "--privileged"}, "pattern"),
        ({"conda": "-n"}, "pattern"),
    ],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, Any], says: str):
    with pytest.raises(ValidationError, match=says):
        request(**fields)


def test_a_setup_goes_with_an_interpreter_of_the_node():
    spec = request(setup="pip install -r requirements.txt", conda="torch", mounts="imagenet").spec("ada")
    assert (spec.setup, spec.conda, spec.image) == ("pip install -r requirements.txt", "torch", "")
