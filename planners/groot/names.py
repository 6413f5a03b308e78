"""Which node is called what in Groot, and under which attribute each of its options stands.

Options that hold text stand there as they are, times as milliseconds, and everything else as JSON.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

Category = Literal["", "Action", "Condition", "Control", "Decorator"]


_NONE: Mapping[str, str] = MappingProxyType({})


class Known(NamedTuple):
    """`category` is the kind of a node that BehaviorTree.CPP does not have, and that a file therefore declares."""

    tag: str
    kind: str
    texts: Mapping[str, str] = _NONE  # option: attribute
    times: Mapping[str, str] = _NONE
    whole: Mapping[str, str] = _NONE  # numbers
    coded: Mapping[str, str] = _NONE  # JSON
    category: Category = ""


_VARS = {"vars": "vars"}
_STEP_CODED = {"input": "input", "output": "output", "retry": "retry", **_VARS}
_HUMAN_CODED = {"form": "form", "assignees": "assignees", **_VARS}
KNOWN = (
    Known("Sequence", "sequence"),
    Known("Fallback", "selector"),
    Known("Parallel", "parallel"),
    Known("ConditionalSelector", "conditional_selector", category="Control"),
    Known("Inverter", "invert"),
    Known("ForceSuccess", "force_success"),
    Known("ForceFailure", "force_failure"),
    Known("RetryUntilSuccessful", "retry", whole={"attempts": "num_attempts"}, times={"delay": "delay_msec"}),
    Known("Repeat", "repeat", whole={"times": "num_cycles"}, texts={"until": "until"}),
    Known("Timeout", "timeout", times={"after": "msec"}),
    Known("Cooldown", "cooldown", times={"for": "msec"}, category="Decorator"),
    Known("Guard", "guard", texts={"when": "when"}, category="Decorator"),
    Known("ScriptCondition", "condition", texts={"when": "code"}),
    Known("SetVars", "set", coded={"vars": "values"}, category="Action"),
    Known("Step", "action", {"agent": "agent", "tool": "tool"}, {"timeout": "timeout_msec"}, {}, _STEP_CODED, "Action"),
    Known("Sleep", "wait", times={"for": "msec"}, coded={"until": "until"}),
    Known("Signal", "signal", texts={"signal": "signal"}, coded=_VARS, category="Action"),
    Known("Human", "human", {"title": "title", "instructions": "instructions"}, {}, {}, _HUMAN_CODED, "Action"),
    Known(
        "Subworkflow", "subworkflow", {"workflow": "workflow", "version": "version"},
        coded={"input": "input", **_VARS}, category="Action",
    ),
    Known("SubTree", "subtree", texts={"use": "ID"}, coded={"with": "with"}),
)  # fmt: skip
BY_KIND = {known.kind: known for known in KNOWN}
BY_TAG = {known.tag: known for known in KNOWN}

# A composite without memory has a name of its own.
REACTIVE = {"sequence": "ReactiveSequence", "selector": "ReactiveFallback"}
# Other names for what we have: a sequence goes on with its running child under either name.
ALIASES = {"SequenceWithMemory": "Sequence", "SequenceStar": "Sequence", "AsyncSequence": "Sequence",
           "AsyncFallback": "Fallback"}  # fmt: skip
BRANCH = "Branch"  # of a conditional selector, with its `when`
ALL = "-1"  # how many children of a parallel: every one
ALWAYS = {"AlwaysSuccess": "true", "AlwaysFailure": "false"}
