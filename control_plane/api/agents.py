"""/api/v1/agents: which agents have live workers, and how busy they are."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response

from control_plane.api import schemas
from control_plane.api.answers import answer, documented
from control_plane.api.listing import Filter, Listing, Page, keyed
from control_plane.api.request import Behind
from control_plane.registry.agents import LiveAgent

router = APIRouter(prefix="/api/v1/agents", tags=["agents"])

_LISTED = Listing(filters={"name": Filter("Its name.")}, sorts=("name",), default_sort="name")


@router.get("", responses=documented(422, ok=schemas.AgentList), openapi_extra=_LISTED.openapi())
async def list_agents(behind: Behind, page: Annotated[Page, Depends(_LISTED)]) -> Response:
    """Agents that some worker answers for now."""
    name = page.filters.get("name")
    agents = [agent for agent in behind.agents.now() if name is None or agent.name == name]
    shown, last = keyed(page, agents, lambda agent: (agent.name,))
    return answer(page.answer([agent_view(agent) for agent in shown], last, total=len(agents)))


def agent_view(agent: LiveAgent) -> dict[str, Any]:
    return {"name": agent.name, "workers": agent.workers, "running": agent.running}
