"""`af version`."""

from agentflow.cli.output import JsonFlag, print_json, stdout


def show_version(json: JsonFlag = False) -> None:
    """Print the version of AgentFlow and of the Python it runs on.

    \b
    Examples:
      af version
      af version --json
    """
    import platform
    from importlib.metadata import PackageNotFoundError, version

    try:
        agentflow = version("agentflow")
    except PackageNotFoundError:
        agentflow = "unknown (not installed as a package)"
    if json:
        print_json({"agentflow": agentflow, "python": platform.python_version()})
    else:
        stdout().print(f"agentflow {agentflow} (Python {platform.python_version()})")
