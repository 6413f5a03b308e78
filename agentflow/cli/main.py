"""`af`: puts the commands together, and turns whatever leaves them into an exit code."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from agentflow.cli import (
    agents,
    audit,
    auth,
    benchmarks,
    budgets,
    bus,
    certificates,
    costs,
    database,
    demo,
    deploy,
    dev,
    doctor,
    forks,
    limits,
    migrate,
    people,
    replay,
    run,
    schedules,
    services,
    snapshot,
    status,
    storage,
    tasks,
    tools,
    validate,
    version,
    workflows,
)
from agentflow.cli.errors import report
from agentflow.errors import AgentFlowError

app = typer.Typer(
    name="af",
    help="AgentFlow: durable workflows for agents. Try `af demo support`, then `af dev`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # no stack trace ever reaches a person who did not ask for it
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def options(
    ca: Annotated[
        Path | None,
        typer.Option(
            "--ca", help="Trust this authority's certificates (PEM); else AF_TLS_CA_FILE.", show_default=False
        ),
    ] = None,
) -> None:
    if ca is not None:
        from agentflow.settings import choose

        choose("AF_TLS_CA_FILE", str(ca))


app.command("dev")(dev.dev)
app.add_typer(demo.app, name="demo")
app.command("run")(run.run)
app.command("replay")(replay.replay)
app.command("deploy")(deploy.deploy)
app.command("migrate")(migrate.migrate)
app.add_typer(forks.app, name="executions")
app.add_typer(workflows.app, name="workflow")
app.add_typer(schedules.app, name="schedule")
app.add_typer(tasks.app, name="tasks")
app.add_typer(agents.app, name="agents")
app.add_typer(audit.app, name="audit")
app.command("costs")(costs.costs)
app.add_typer(budgets.app, name="budgets")
app.add_typer(database.app, name="db")
app.add_typer(tools.app, name="tool")
app.add_typer(auth.app, name="auth")
app.add_typer(bus.app, name="bus")
app.add_typer(certificates.app, name="certs")
app.add_typer(people.users, name="users")
app.add_typer(people.service_accounts, name="service-accounts")
app.add_typer(people.roles, name="roles")
app.add_typer(people.api_keys, name="api-keys")
app.add_typer(people.tenants, name="tenants")
app.command("validate")(validate.validate)
app.command("server")(services.server)
app.command("worker")(services.worker)
app.add_typer(snapshot.app, name="snapshot")
app.add_typer(storage.storage, name="storage")
app.add_typer(storage.retention, name="retention")
app.add_typer(storage.keys, name="keys")
database.app.command("rekey")(storage.rekey)  # the same as `af keys rekey`, where people look for it too
app.command("doctor")(doctor.doctor)
app.add_typer(benchmarks.app, name="bench")
app.command("limits")(limits.show_limits)
app.command("status")(status.show_status)
app.command("version")(version.show_version)


def main() -> None:
    sys.exit(af(sys.argv[1:]))


def af(arguments: Sequence[str]) -> int:
    """Perform one command line and say how the process should exit."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that lacks ✓ gets ?, not a crash
    try:
        app(args=list(arguments), prog_name="af")
    except SystemExit as ending:  # how typer ends, also after Ctrl-C and wrong usage
        return ending.code if isinstance(ending.code, int) else 0
    except Exception as error:  # noqa: BLE001 - the last place where an error can become a message
        return report(error, debug=_debug())
    return 0


def _debug() -> bool:
    from agentflow.settings import load_settings

    try:
        return load_settings().log_level == "debug"
    except AgentFlowError:
        return False
