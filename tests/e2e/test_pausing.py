"""Pausing everything of a workflow, or of a tenant, stops what is dispatched within five seconds (UA-7 d)."""

from agentflow.clock import SystemClock, parse_rfc3339

EXECUTIONS, WITHIN_S = 60, 5.0
# Its agent is hosted by nobody, so each attempt is over soon and the next is dispatched: all of them, all the time.
WORKFLOW = """\
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: restless, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: lonely
    final_states: [lonely]
    states:
      lonely: {agent: hosted-by-nobody, timeout: 500ms, retry: {max_attempts: 100, initial: 1ms, max: 1ms}}
"""


async def test_pausing_a_workflow_or_all_of_the_tenant_stops_new_dispatch_within_five_seconds(api, af):
    await api.push_workflow(WORKFLOW)
    started = [(await api.execute("restless", {})).execution_id for _ in range(EXECUTIONS)]
    for scope in (("--workflow", "restless"), ("--all",)):
        asked_ms = SystemClock().now_ms()
        af("executions", "pause", *scope)

        dispatched = [
            parse_rfc3339(event.at)
            for execution in started
            for event in await api.history(execution)
            if event.type == "step.scheduled.v1"
        ]
        assert max(dispatched) - asked_ms <= WITHIN_S * 1000
        assert (await api.executions(workflow="restless", status="paused")).total_count == EXECUTIONS
        af("executions", "resume", *scope)
    for execution in started:
        await api.terminate(execution)
