"""A tool's module is imported as any program would import it; one that cannot be says where (UA-17 a, c)."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from sandbox.policy import OPERATOR, ToolNeeds, compile_profile
from sandbox.runner import open_sandbox
from sandbox.tool_call import ToolCall

IMPORTING = """
import sys

import fastmcp
import numpy
import openai
import pydantic


class Order(pydantic.BaseModel):
    lines: list[int]


def weigh(input):
    return {
        "total": sum(Order.model_validate(input).lines),
        "finders": [getattr(finder, "__name__", type(finder).__name__) for finder in sys.meta_path],
        "import": f"{__import__.__module__}.{__import__.__name__}",
        "more": [numpy.arange(3).sum().item(), openai.OpenAI.__name__, fastmcp.FastMCP.__name__],
    }
"""


HOMELY = """
import os
from pathlib import Path


def settle(input):
    home = Path.home()
    found = sorted(each.name for each in home.iterdir())
    (home / ".settings").write_text("mine")
    return {"home": str(home), "found": found, "here": home.samefile("."), "env": sorted(os.environ)}
"""


@pytest.fixture
async def run(tmp_path):
    sandbox = await open_sandbox("process")
    profile = compile_profile(
        ToolNeeds("t"), backend="process", isolation=sandbox.isolation, folder=str(tmp_path), authorities=(OPERATOR,)
    )

    async def called(call: str, input):
        given = ToolCall(call, (str(tmp_path),), input, "exec_1", "step", 1, "acme/exec_1/step", tenant="acme")
        return await sandbox.run(given, profile)

    yield called
    await sandbox.close()


async def test_a_tool_that_cannot_be_imported_fails_with_the_end_of_the_traceback_and_no_other_does(run, tmp_path):
    (tmp_path / "sick.py").write_text("import json\nimport no_such_package_here\n")
    (tmp_path / "well.py").write_text("def f(input):\n    return input\n")

    failed = (await run("sick:f", 5)).fault

    assert (failed.code, failed.retryable) == ("tool_error", False)
    assert "No module named 'no_such_package_here'" in failed.message
    assert "sick.py:2 in <module>: import no_such_package_here" in failed.message
    assert str(tmp_path) not in failed.message, "no folder of this machine"
    assert (await run("well:f", 5)).output == 5


async def test_every_call_has_a_home_of_its_own_that_is_not_the_workers(run, tmp_path):
    (tmp_path / "homely.py").write_text(HOMELY)

    first, second = [(await run("homely:settle", None)).output for _ in range(2)]

    assert first["home"] != str(Path.home())
    assert first["env"] == ["HOME"]
    assert first["here"], "where it starts, which is gone with the call"
    assert first["found"] == second["found"] == []


async def test_a_tool_may_be_given_another_home(tmp_path):
    (tmp_path / "homely.py").write_text("import os\n\n\ndef where(input):\n    return os.environ['HOME']\n")
    sandbox = await open_sandbox("process")
    profile = compile_profile(
        ToolNeeds("t", environment={"HOME": "/nowhere"}),
        backend="process",
        isolation=sandbox.isolation,
        folder=str(tmp_path),
        authorities=(OPERATOR,),
    )
    given = ToolCall("homely:where", (str(tmp_path),), None, "exec_1", "s", 1, "acme/exec_1/s", tenant="acme")
    try:
        assert (await sandbox.run(given, profile)).output == "/nowhere"
    finally:
        await sandbox.close()


async def test_a_tool_imports_large_libraries_as_any_program_would_and_no_hook_is_installed(run, tmp_path):
    (tmp_path / "heavy.py").write_text(IMPORTING)
    plain = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "import heavy, json; print(json.dumps(heavy.weigh({'lines': [1, 2]})))"),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
    )

    assert (await run("heavy:weigh", {"lines": [1, 2]})).output == json.loads((await plain.communicate())[0])
