"""The repository keeps its own habits: what CONTRIBUTING.md promises is checked here."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("agentflow", "control_plane", "planners", "sandbox", "worker")

MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
BANNED_NAMES = {"utils", "util", "helpers", "common", "manager", "misc", "base"}


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


def modules() -> list[Path]:
    generated = ROOT / "agentflow" / "v1"
    return [path for path in tracked("*.py") if generated not in path.parents]


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", modules(), ids=shown)
def test_a_module_is_readable_in_one_sitting(path):
    text = path.read_text()
    tree = ast.parse(text)

    assert len(text.splitlines()) <= MODULE_LINES_MAX
    long = [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno > FUNCTION_LINES_MAX
    ]
    assert long == []
    assert path.stem not in BANNED_NAMES
    assert "TODO" not in text.replace('"TODO"', "")


@pytest.mark.parametrize("path", [path for path in modules() if path.relative_to(ROOT).parts[0] in PACKAGES], ids=shown)
def test_a_module_of_the_product_opens_by_saying_what_it_is_for(path):
    assert ast.get_docstring(ast.parse(path.read_text())), "a module docstring: role, neighbours, limits"


def error_codes() -> dict[str, str]:
    codes: dict[str, str] = {}
    for path in modules():
        if path.relative_to(ROOT).parts[0] not in PACKAGES:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                for code in re.findall(
                    r"""\n    code(?:: ClassVar\[str\])? = "(AF\d{4})""",
                    ast.get_source_segment(path.read_text(), node) or "",
                ):
                    assert code not in codes or codes[code] == node.name, (
                        f"{code} is used by {codes[code]} and {node.name}"
                    )
                    codes[code] = node.name
    return codes


def test_every_error_code_is_used_once_and_has_a_page_that_says_what_to_do():
    codes = error_codes()
    pages = {path.stem for path in tracked("docs/errors/AF*.md")}

    assert len(codes) > 20
    assert set(codes) - pages == set(), "codes without a page"
    assert pages - set(codes) == set(), "pages without a code"
    for page in pages:
        text = (ROOT / "docs" / "errors" / f"{page}.md").read_text()
        assert text.startswith(f"# {page}: ")
        assert "## What to do" in text


def test_every_make_target_is_documented_for_contributors():
    targets = re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    contributing = (ROOT / "CONTRIBUTING.md").read_text()

    assert [target for target in targets if target != "help" and f"`make {target}`" not in contributing] == []


@pytest.mark.parametrize("page", tracked("*.md"), ids=shown)
def test_links_between_documents_lead_somewhere(page):
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text())

    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_paths_that_the_walkthrough_and_the_map_name_exist():
    for name in ("walkthrough.md", "architecture.md"):
        text = (ROOT / "docs" / name).read_text()
        paths = re.findall(
            r"`((?:agentflow|control_plane|planners|sandbox|worker|templates|proto|bench|tests)/[\w/.*-]+)`", text
        )
        assert len(paths) > 10
        assert [path for path in paths if not list(ROOT.glob(path))] == []


def test_lock_files_name_no_registry_and_hash_everything():
    locks = tracked("requirements/*.txt")

    assert len(locks) == 3
    for lock in locks:
        text = lock.read_text()
        assert "://" not in text
        assert "index-url" not in text
        pinned = re.findall(r"^[a-z0-9][^=\n]*==", text, re.MULTILINE)
        assert len(pinned) == len(
            re.findall(r"\\\n    --hash=sha256:[0-9a-f]{64}(?: \\\n    --hash=sha256:[0-9a-f]{64})*", text)
        )


def test_relations_between_limits_hold():
    from agentflow import limits

    assert limits.PROGRESS_S * 2 < limits.ACK_WAIT_S, "one lost sign of life must not give a step away"
    assert limits.PAYLOAD_BYTES_MAX * 2 <= limits.BUS_MESSAGE_BYTES_MAX, "an envelope must fit around a payload"
    assert limits.CLAIM_CHECK_BYTES < limits.PAYLOAD_BYTES_MAX, "what is not claimed must fit into a message"
    assert limits.VALUE_BYTES_MAX <= limits.ARTIFACT_BYTES_MAX
    assert limits.DEFINITION_BYTES_MAX <= limits.REQUEST_BYTES_MAX
    assert limits.ACK_WAIT_S < limits.DEDUP_WINDOW_S / 2, "a redelivery comes before the sweeper becomes careful"
    assert limits.COMMIT_BATCH_MAX <= limits.COMMIT_QUEUE_MAX
    assert limits.AGENT_UNACKED_MAX >= 8 * limits.AGENT_CONCURRENCY_MAX, "a few busy workers, and a few that died"
    assert limits.PULL_EXPIRES_S <= limits.WORKER_LOST_AFTER_S, "what a lost worker held is not given to it again"
    assert limits.PULL_HEARTBEAT_S * 2 <= limits.PULL_EXPIRES_S, "JetStream refuses a rarer one"
    assert limits.WORKER_LOST_AFTER_S >= 3 * limits.HEARTBEAT_S, "a lost beat or two is no lost worker"
    assert limits.WORKER_GONE_AFTER_S > limits.HEARTBEAT_S, "who is in time is not asked for"
    assert limits.WORKER_GONE_AFTER_S + 2 * limits.WORKER_LOOK_S < 2 * limits.HEARTBEAT_S, "a look, and its question"
