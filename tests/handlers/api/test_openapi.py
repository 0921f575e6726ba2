"""The OpenAPI document: valid, and about what the API really answers."""

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from bot.core.record import Phase
from handlers.api.calls import CALLS, document
from tests.handlers.api.test_sweeps import stored


def test_document_is_valid():
    OpenAPIV31SpecValidator(document()).validate()
    operations = [each for path in document()["paths"].values() for each in path.values()]
    assert {each["operationId"] for each in operations} == {each.name for each in CALLS}


async def test_document_is_served_without_a_token(api):
    async with api.get("/api/v1/openapi.json") as answer:
        assert (answer.status, await answer.json()) == (200, document())


@pytest.mark.parametrize(
    ("method", "path", "of", "options"),
    [
        ("GET", "/sweeps", "/sweeps", {}),
        ("GET", "/sweeps", "/sweeps", {"limit": "0"}),
        ("GET", "/sweeps/lr-brave-otter", "/sweeps/{id}", {}),
        ("GET", "/sweeps/lr-no-such", "/sweeps/{id}", {}),
    ],
)
async def test_answers_are_as_the_document_says(call, context, method, path, of, options):
    await stored(context, Phase.RUNNING)
    status, found = await call(method, path, **options)
    described = document()["paths"][f"/api/v1{of}"][method.lower()]["responses"]
    if str(status) in described:
        schema = described[str(status)]["content"]["application/json"]["schema"]
    else:
        schema = {"$ref": "#/components/schemas/Problem"}
    Draft202012Validator(schema | {"components": document()["components"]}).validate(found)
